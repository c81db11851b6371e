use super::super::WorkloadError;
use super::read;

const GOOD: &str = r#"{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}"#;
const FIRST: &str =
    r#"{"session_id":"s","timestamp":0,"input_length":5,"output_length":5,"hash_ids":[0]}"#;
const LATER: &str =
    r#"{"session_id":"s","delay":10,"input_length":5,"output_length":5,"hash_ids":[1]}"#;
const OTHER: &str =
    r#"{"session_id":"t","timestamp":9,"input_length":5,"output_length":5,"hash_ids":[2]}"#;
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const AZURE: &str = "2023-11-16 18:17:03.9799600,4808,10";

/// `bad` after `good`: reported with file, line and reason; skipped when asked, and a good row
/// after it still read.
fn reported(good: &str, bad: &str, reason: &str, good_after: &str) {
    let content = format!("{good}\n\n{bad}\n{good_after}\n");
    let line = good.lines().count() + 2;
    let expected = format!("trace.txt:{line}: {reason}");

    let error = read(&content, false).unwrap_err();
    assert!(matches!(error, WorkloadError::Row(_)), "{error:?}");
    assert_eq!(error.to_string(), expected);

    let workload = read(&content, true).unwrap();
    let skipped: Vec<String> = workload.skipped_rows.iter().map(ToString::to_string).collect();
    assert_eq!(skipped, [expected]);
    assert_eq!(workload.requests(), 2, "{bad}");
}

const TOKENS: &str = "expected a whole number from 1 to 16777216";
const MS: &str = "expected milliseconds, a number from 0 to 1e13";
const IDS: &str = "expected a list of whole numbers from 0";

#[test]
fn each_kind_of_bad_mooncake_row_is_reported_and_skipped() {
    let cases = [
        ("\"input_length\":600", "\"input_length\":0", format!("input_length: {TOKENS}, found 0")),
        (
            "\"input_length\":600",
            "\"input_length\":-600",
            format!("input_length: {TOKENS}, found -600"),
        ),
        (
            "\"input_length\":600",
            "\"input_length\":600.5",
            format!("input_length: {TOKENS}, found 600.5"),
        ),
        (
            "\"input_length\":600",
            "\"input_length\":\"600\"",
            format!("input_length: {TOKENS}, found \"600\""),
        ),
        (
            "\"input_length\":600",
            "\"input_length\":16777217",
            format!("input_length: {TOKENS}, found 16777217"),
        ),
        ("\"input_length\":600,", "", format!("input_length: missing, {TOKENS}")),
        ("\"output_length\":5", "\"output_length\":0", format!("output_length: {TOKENS}, found 0")),
        ("\"output_length\":5,", "", format!("output_length: missing, {TOKENS}")),
        ("\"timestamp\":0", "\"timestamp\":-1", format!("timestamp: {MS}, found -1")),
        (
            "\"timestamp\":0",
            "\"timestamp\":1e14",
            format!("timestamp: {MS}, found 100000000000000.0"),
        ),
        (
            "\"timestamp\":0",
            "\"timestamp\":100000000000000",
            format!("timestamp: {MS}, found 100000000000000"),
        ),
        ("\"timestamp\":0", "\"timestamp\":null", format!("timestamp: {MS}, found null")),
        ("\"timestamp\":0,", "", format!("timestamp: missing, {MS}")),
        ("[0,1]", "7", format!("hash_ids: {IDS}, found 7")),
        ("[0,1]", "[0,-1]", format!("hash_ids: {IDS}, found -1")),
        (",\"hash_ids\":[0,1]", "", format!("hash_ids: missing, {IDS}")),
        (
            "[0,1]",
            "[0]",
            "hash_ids: expected 2 ids (input_length 600 / 512, rounded up), found 1".to_owned(),
        ),
        (
            "[0,1]",
            "[0,1,2]",
            "hash_ids: expected 2 ids (input_length 600 / 512, rounded up), found 3".to_owned(),
        ),
    ];
    for (from, to, reason) in cases {
        let bad = GOOD.replace(from, to);
        assert_ne!(bad, GOOD);
        reported(GOOD, &bad, &reason, GOOD);
    }
}

#[test]
fn a_line_that_is_no_json_object_is_reported_and_skipped() {
    for bad in
        ["{\"timestamp\":", "[1,2]", "nonsense", "{\"timestamp\":NaN}", "{\"timestamp\":1e999}"]
    {
        let content = format!("{GOOD}\n{bad}\n");
        let error = read(&content, false).unwrap_err().to_string();
        assert!(error.starts_with("trace.txt:2: expected a JSON object: "), "{error}");
        assert_eq!(read(&content, true).unwrap().skipped_rows.len(), 1);
    }
}

#[test]
fn a_line_that_is_no_text_is_reported_and_skipped() {
    let mut content = GOOD.as_bytes().to_vec();
    content.extend(b"\n\xff\xfe\n");
    let error = super::super::read("trace.txt", content.as_slice(), false).unwrap_err();
    assert_eq!(error.to_string(), "trace.txt:2: expected UTF-8 text");
    let workload = super::super::read("trace.txt", content.as_slice(), true).unwrap();
    assert_eq!((workload.requests(), workload.skipped_rows.len()), (1, 1));
}

#[test]
fn each_kind_of_bad_turn_is_reported_and_skipped() {
    let name = "a string that is not empty";
    let cases = [
        ("\"session_id\":\"s\",", "", format!("session_id: missing, expected {name}")),
        ("\"s\"", "\"\"", format!("session_id: expected {name}, found \"\"")),
        ("\"s\"", "7", format!("session_id: expected {name}, found 7")),
        ("\"delay\":10,", "", format!("delay: missing, {MS}")),
        ("\"delay\":10", "\"delay\":-10", format!("delay: {MS}, found -10")),
        ("\"input_length\":5", "\"input_length\":0", format!("input_length: {TOKENS}, found 0")),
    ];
    for (from, to, reason) in cases {
        let bad = LATER.replace(from, to);
        assert_ne!(bad, LATER);
        reported(FIRST, &bad, &reason, OTHER);
    }
}

#[test]
fn turns_after_a_bad_turn_of_their_session_are_bad() {
    let bad_first = FIRST.replace("\"output_length\":5", "\"output_length\":0");
    let content = format!("{OTHER}\n{bad_first}\n{LATER}\n{LATER}\n");
    let workload = read(&content, true).unwrap();
    let skipped: Vec<String> = workload.skipped_rows.iter().map(ToString::to_string).collect();
    let no_context =
        "session_id: the row of session \"s\" in line 2 is bad, so this turn has no context";
    assert_eq!(
        skipped,
        [
            format!("trace.txt:2: output_length: {TOKENS}, found 0"),
            format!("trace.txt:3: {no_context}"),
            format!("trace.txt:4: {no_context}"),
        ]
    );
    assert_eq!(workload.requests(), 1);

    let bad_later = LATER.replace("[1]", "[]");
    let content = format!("{FIRST}\n{bad_later}\n{LATER}\n{OTHER}\n");
    let workload = read(&content, true).unwrap();
    assert_eq!(workload.skipped_rows.len(), 2);
    assert_eq!(workload.requests(), 2);
}

#[test]
fn a_later_turn_without_its_first_turn_is_bad() {
    let error = read(LATER, false).unwrap_err();
    assert_eq!(error.to_string(), format!("trace.txt:1: timestamp: missing, {MS}"));
}

#[test]
fn each_kind_of_bad_azure_row_is_reported_and_skipped() {
    let time =
        "expected YYYY-MM-DD HH:MM:SS with at most 7 fraction digits, a date from 1970 to 2399";
    let good = format!("{HEADER}\n{AZURE}");
    let cases = [
        ("4808", "0", format!("ContextTokens: {TOKENS}, found \"0\"")),
        ("4808", "many", format!("ContextTokens: {TOKENS}, found \"many\"")),
        ("4808", "", format!("ContextTokens: {TOKENS}, found \"\"")),
        (",10", ",0", format!("GeneratedTokens: {TOKENS}, found \"0\"")),
        (",10", ",-3", format!("GeneratedTokens: {TOKENS}, found \"-3\"")),
        (",10", "", "expected 3 comma-separated fields, found 2".to_owned()),
        (",10", ",10,11", "expected 3 comma-separated fields, found 4".to_owned()),
        ("9799600", "97996001", format!("TIMESTAMP: {time}, found \"2023-11-16 18:17:03.97996001\"")),
        ("2023-11-16 ", "", format!("TIMESTAMP: {time}, found \"18:17:03.9799600\"")),
        (
            "18:17:03",
            "18:17:02",
            "TIMESTAMP: expected a time that is not before the first row's, found \"2023-11-16 18:17:02.9799600\""
                .to_owned(),
        ),
    ];
    for (from, to, reason) in cases {
        let bad = AZURE.replacen(from, to, 1);
        assert_ne!(bad, AZURE);
        reported(&good, &bad, &reason, AZURE);
    }
}
