//! Instructions of the steady decode step: what a gate can hold where times cannot.
//!
//! `cargo bench --bench icount` counts, `-- --check` holds the counts to `icount.toml`. The program
//! runs itself under callgrind, each case with few steps and with many: set-up is in both, so the
//! difference is that of the steps alone, with some 70 instructions a row for the harness's own
//! draws. The same build counts the same to the instruction.

use paceline::PublishPolicy;
use paceline::bench::StepBench;
use serde::Deserialize;
use std::process::{Command, ExitCode, Stdio};

const FEW_STEPS: u32 = 256;
const MANY_STEPS: u32 = 2304;

/// What `icount.toml` says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Most instructions of a request and step in the first case.
    base_limit: f64,
    /// How far context and pool may move that figure, as a share of it.
    spread: f64,
    /// How far `max_seq_len` may.
    max_seq_len_spread: f64,
}

/// What is counted.
struct Case {
    name: &'static str,
    bench: StepBench,
    near: Option<Near>,
}

/// The case whose figure a case must be near, and how near.
struct Near {
    other: &'static str,
    spread: fn(&Limits) -> f64,
}

/// Valgrind offers no SHA instructions, so hashing would be most of every figure: nothing is
/// published but in the last case.
fn cases() -> Vec<Case> {
    let base = StepBench {
        context_tokens: 8 << 10,
        publish: PublishPolicy::Off,
        steps: MANY_STEPS,
        ..StepBench::default()
    };
    let case = |name, near, bench| Case { name, bench, near };
    let near = |other| Some(Near { other, spread: |limits| limits.spread });
    let nearer = |other| Some(Near { other, spread: |limits| limits.max_seq_len_spread });
    let long = StepBench { context_tokens: 128 << 10, ..base.clone() };
    let large = StepBench { pool_pages: Some(10 * base.full_pages()), ..base.clone() };
    let at_most = |tokens| StepBench { max_seq_len: Some(tokens), ..base.clone() };
    let publishing = StepBench { publish: PublishPolicy::AllReusable, ..base.clone() };
    vec![
        case("64 requests at 8K", None, base.clone()),
        case("at 128K", near("64 requests at 8K"), long),
        case("10x the pages", near("64 requests at 8K"), large),
        case("max_seq_len 32K", nearer("64 requests at 8K"), at_most(32 << 10)),
        case("max_seq_len 1M", nearer("max_seq_len 32K"), at_most(1 << 20)),
        case("publishing", None, publishing),
    ]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, case, steps] = arguments.as_slice()
        && command == "run"
    {
        let case = &cases()[case.parse::<usize>().expect("the number of a case")];
        run(&case.bench, steps.parse().expect("a number of steps"));
        return ExitCode::SUCCESS;
    }
    let is_check = arguments.iter().any(|argument| argument == "--check");
    let is_there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("icount: valgrind is not installed, nothing was counted");
        return if is_check { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    report(is_check)
}

fn run(bench: &StepBench, steps: u32) {
    let mut steady = bench.start().expect("the numbers make a valid configuration");
    (0..steps).for_each(|_| steady.step());
    steady.check();
}

fn report(is_check: bool) -> ExitCode {
    let limits: Limits = toml::from_str(include_str!("icount.toml")).expect("icount.toml is valid");
    let mut figures: Vec<(&str, f64)> = Vec::new();
    let mut broken = Vec::new();
    println!("instructions of a request and step");
    for (index, case) in cases().iter().enumerate() {
        let figure = count(index, case.bench.requests);
        let near = case.near.as_ref().map(|near| {
            let other = figures.iter().find(|(name, _)| *name == near.other);
            let (name, other) = other.expect("counted before");
            (*name, figure / other - 1.0, (near.spread)(&limits))
        });
        match near {
            None => println!("{:<20} {figure:8.1}", case.name),
            Some((other, off, _)) => {
                println!("{:<20} {figure:8.1}  {:+5.1} % of {other}", case.name, 100.0 * off);
            }
        }
        if let Some((other, off, spread)) = near.filter(|(_, off, spread)| off.abs() > *spread) {
            let (off, spread) = (100.0 * off, 100.0 * spread);
            broken.push(format!("{}: {off:+.1} % of {other}, allowed {spread} %", case.name));
        }
        figures.push((case.name, figure));
    }
    let (name, base) = figures[0];
    if base > limits.base_limit {
        broken.push(format!("{name}: {base:.1}, allowed {}", limits.base_limit));
    }
    for broken in &broken {
        println!("over the limit: {broken} (benches/icount.toml)");
    }
    if is_check && !broken.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Instructions of one request in one step.
fn count(case: usize, requests: u32) -> f64 {
    let [few, many] = [FEW_STEPS, MANY_STEPS].map(|steps| start(case, steps));
    let difference = collected(many) - collected(few);
    difference as f64 / f64::from(MANY_STEPS - FEW_STEPS) / f64::from(requests)
}

fn start(case: usize, steps: u32) -> std::process::Child {
    Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("a program knows its file"))
        .args(["run", &case.to_string(), &steps.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind starts")
}

/// What callgrind says it counted.
fn collected(child: std::process::Child) -> u64 {
    let output = child.wait_with_output().expect("valgrind ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let count =
        said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.filter(|_| output.status.success()).unwrap_or_else(|| panic!("valgrind says:\n{said}"))
}
