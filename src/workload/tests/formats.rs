use super::super::WorkloadError;
use super::{blocks, read, session, turn};

#[test]
fn a_mooncake_row_is_a_session_of_one_turn() {
    let workload = read(
        r#"{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}"#,
        false,
    )
    .unwrap();
    let only = session(27_482_000_000, vec![turn(0, blocks(&[46, 47], 600), 52)]);
    assert_eq!(workload.sessions, [only]);
    assert_eq!(workload.name, "trace");
    assert_eq!(workload.requests(), 1);
}

#[test]
fn rows_with_a_session_id_are_the_turns_of_one_session() {
    // Interleaved, with a blank line, CRLF line ends and no end of line at the end.
    let workload = read(
        "{\"session_id\":\"a\",\"input_length\":512,\"output_length\":5,\"hash_ids\":[1],\"timestamp\":2.5,\"group_id\":7}\r\n\
         {\"session_id\":\"b\",\"input_length\":1,\"output_length\":6,\"hash_ids\":[2],\"timestamp\":0.0,\"group_id\":7}\r\n\
         \r\n\
         {\"session_id\":\"a\",\"input_length\":513,\"output_length\":7,\"hash_ids\":[3,4],\"delay\":12190.1}",
        false,
    )
    .unwrap();
    let a = session(
        2_500_000,
        vec![turn(0, blocks(&[1], 512), 5), turn(12_190_100_000, blocks(&[3, 4], 513), 7)],
    );
    let b = session(0, vec![turn(0, blocks(&[2], 1), 6)]);
    assert_eq!(workload.sessions, [b, a]);
}

#[test]
fn an_azure_row_starts_relative_to_the_first_and_shares_no_block() {
    let workload = read(
        "\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\n\
         2023-11-16 23:59:59.9799600,600,10\n\
         2023-11-17 00:00:00.0319601,600,8\n",
        false,
    )
    .unwrap();
    let first = session(0, vec![turn(0, blocks(&[0, 1], 600), 10)]);
    let second = session(52_000_100, vec![turn(0, blocks(&[2, 3], 600), 8)]);
    assert_eq!(workload.sessions, [first, second]);
}

#[test]
fn a_broken_first_row_does_not_hide_the_format() {
    let workload = read(
        "{\"session_id\":\"a\",\n\
         {\"session_id\":\"b\",\"input_length\":1,\"output_length\":6,\"hash_ids\":[2],\"timestamp\":0}\n\
         {\"session_id\":\"b\",\"input_length\":1,\"output_length\":6,\"hash_ids\":[2],\"delay\":0}\n",
        true,
    )
    .unwrap();
    assert_eq!(workload.requests(), 2);
    assert_eq!(workload.sessions.len(), 1);
    assert_eq!(workload.skipped_rows.len(), 1);
}

#[test]
fn an_unknown_format_is_reported_with_what_was_found() {
    let error = read("\nhello, world\n", true).unwrap_err();
    assert!(matches!(error, WorkloadError::UnknownFormat { .. }));
    assert_eq!(
        error.to_string(),
        "trace.txt:2: not a known trace format: expected a JSON object or the CSV header \
         TIMESTAMP,ContextTokens,GeneratedTokens, found \"hello, world\""
    );
}

#[test]
fn a_file_without_requests_is_an_error() {
    for content in ["", "\n \n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"] {
        let error = read(content, false).unwrap_err();
        assert_eq!(error.to_string(), "trace.txt: no requests (0 bad rows skipped)");
    }
    let error = read("{}\n{}\n", true).unwrap_err();
    assert_eq!(error.to_string(), "trace.txt: no requests (2 bad rows skipped)");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_name() {
    let error = super::super::open("/nowhere/trace.jsonl", false).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/trace.jsonl: cannot open: "), "{error}");
    let error = super::super::open(env!("CARGO_MANIFEST_DIR"), false).unwrap_err();
    assert!(error.to_string().starts_with(env!("CARGO_MANIFEST_DIR")), "{error}");
}
