//! Record and replay: every input of a core, and a digest of every plan it made of them.
//!
//! A recording is a stream of MessagePack values: the configuration, then submits, cancels, steps
//! and outcomes in the order the core saw them.

use crate::{Config, Core, NewRequest, Outcome, Plan, Verifier};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3Default;

/// One input of a core, or the digest of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The core's configuration; first in every recording.
    Config(Box<Config>),
    /// A request was submitted.
    Submit(NewRequest),
    /// A request was cancelled.
    Cancel(u64),
    /// A step was planned, and its plan had this digest.
    Step(u128),
    /// An outcome was handed back.
    Outcome(Outcome),
}

/// A recording that cannot be replayed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The bytes are no recording, or end in the middle of a record.
    #[error("record {record}: not a paceline recording, or cut short: {source}")]
    Format {
        /// Place in the stream, from 0.
        record: u64,
        /// What the decoder says.
        source: rmp_serde::decode::Error,
    },
    /// The first record is no configuration.
    #[error("a recording begins with its configuration")]
    NoConfig,
    /// The configuration is not valid in this version.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
    /// A plan came out differently.
    #[error(
        "step {step}: the plan differs from the recorded one ({found:032x}, recorded {recorded:032x})"
    )]
    PlanDiffers {
        /// The step.
        step: u64,
        /// Digest now.
        found: u128,
        /// Digest then.
        recorded: u128,
    },
    /// An input that was taken then is refused now.
    #[error("record {record}: {reason}")]
    Refused {
        /// Place in the stream, from 0.
        record: u64,
        /// Why.
        reason: String,
    },
}

/// Digest of a plan: its records, events and final tokens.
#[must_use]
pub fn digest(plan: Plan<'_>) -> u128 {
    let mut hasher = Xxh3Default::new();
    for words in plan.launches().used_words() {
        hasher.update(bytemuck::cast_slice(words));
    }
    for event in plan.events() {
        hasher.update(format!("{event:?}").as_bytes());
    }
    for output in plan.outputs() {
        hasher.update(&output.request.to_le_bytes());
        hasher.update(bytemuck::cast_slice(output.tokens));
    }
    hasher.digest128()
}

/// Writes a recording.
pub struct Recorder<W: Write>(W);

impl<W: Write> Recorder<W> {
    /// Begins a recording of a core built from `config`.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn new(writer: W, config: &Config) -> std::io::Result<Self> {
        let mut recorder = Self(writer);
        recorder.push(&Record::Config(Box::new(config.clone())))?;
        Ok(recorder)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn push(&mut self, record: &Record) -> std::io::Result<()> {
        rmp_serde::encode::write(&mut self.0, record).map_err(std::io::Error::other)
    }

    /// The writer, with what was written so far.
    pub fn get_ref(&self) -> &W {
        &self.0
    }

    /// Ends the recording and gives the writer back.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.0.flush()?;
        Ok(self.0)
    }
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Steps whose plans came out the same, byte for byte.
    pub steps: u64,
    /// Requests submitted.
    pub requests: u64,
    /// Broken invariants and wrong page contents, in all.
    pub violations: u64,
    /// The first of them.
    pub found: Vec<String>,
}

/// Feeds a recording to a new core and compares every plan. With `check` every invariant is
/// audited and every page read and written is followed.
///
/// # Errors
/// When the recording is broken, or a plan differs.
pub fn replay(reader: impl Read, check: bool) -> Result<Replayed, ReplayError> {
    let mut records = rmp_serde::Deserializer::new(reader);
    let mut at = 0;
    let Some(Record::Config(config)) = next(&mut records, at)? else {
        return Err(ReplayError::NoConfig);
    };
    let mut core = Core::new(&config)?;
    let mut verifier = check.then(|| Verifier::new(core.geometry().clone()));
    let mut replayed = Replayed::default();
    // The verifier plays a step when its outcome is known, and steps in flight wait here.
    let mut plans: std::collections::VecDeque<crate::core::OwnedPlan> = Default::default();
    while let Some(record) = {
        at += 1;
        next(&mut records, at)?
    } {
        let refused = |reason: String| ReplayError::Refused { record: at, reason };
        match record {
            Record::Config(_) => return Err(refused("a second configuration".to_owned())),
            Record::Submit(request) => {
                replayed.requests += 1;
                if let Some(verifier) = &mut verifier {
                    verifier.submit(&request);
                }
                core.inbox().submit(request).map_err(|e| refused(e.to_string()))?;
            }
            Record::Cancel(request) => {
                core.inbox().cancel(request).map_err(|e| refused(e.to_string()))?;
            }
            Record::Step(recorded) => {
                let plan = core.step().map_err(|e| refused(e.to_string()))?;
                let (step, found) = (plan.step(), digest(plan));
                if found != recorded {
                    return Err(ReplayError::PlanDiffers { step, found, recorded });
                }
                if check {
                    plans.push_back(plan.to_owned_plan());
                }
                replayed.steps += 1;
                if let Some(verifier) = &mut verifier {
                    for broken in core.audit() {
                        verifier.report(format!("step {step}: {broken}"));
                    }
                }
            }
            Record::Outcome(outcome) => {
                core.complete(&outcome).map_err(|e| refused(e.to_string()))?;
                if let Some(verifier) = &mut verifier {
                    while let Some(plan) = plans.pop_front() {
                        let is_it = plan.plan().step() == outcome.step;
                        let none = Outcome::default();
                        verifier.step(plan.plan(), if is_it { &outcome } else { &none });
                        if is_it {
                            break;
                        }
                    }
                }
            }
        }
    }
    if let Some(verifier) = &verifier {
        let (found, count) = verifier.violations();
        (replayed.found, replayed.violations) = (found.to_vec(), count);
    }
    Ok(replayed)
}

/// The next record, or none at the end of the stream.
fn next<R: Read>(
    records: &mut rmp_serde::Deserializer<rmp_serde::decode::ReadReader<R>>,
    record: u64,
) -> Result<Option<Record>, ReplayError> {
    match Record::deserialize(records) {
        Ok(value) => Ok(Some(value)),
        Err(rmp_serde::decode::Error::InvalidMarkerRead(error))
            if error.kind() == std::io::ErrorKind::UnexpectedEof =>
        {
            Ok(None)
        }
        Err(source) => Err(ReplayError::Format { record, source }),
    }
}
