//! A core whose every step is followed page by page, for tests: rows are answered as told, the
//! verifier plays the device, every invariant is audited after every step, and every input is kept
//! as a recording.
#![allow(dead_code, reason = "each test binary uses its part")]

use paceline::kernels::RowMeta;
use paceline::record::{Record, Recorder, digest, replay};
use paceline::{
    Config, Core, DraftWindow, Event, FinishReason, NewRequest, Outcome, OutcomeError, SubmitError,
    Verifier,
};
use std::collections::{BTreeMap, VecDeque};

/// Tokens a request has emitted so far, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub finished: Option<FinishReason>,
    pub preempted: u32,
    pub matched: Option<u32>,
    pub claimed: Option<u32>,
    pub window: DraftWindow,
    pub computed: u64,
}

pub struct Harness {
    pub core: Core,
    pub verifier: Verifier,
    pub answers: BTreeMap<u64, Answer>,
    /// Digests of all plans.
    pub digests: Vec<u128>,
    /// Rows of the last plan.
    pub rows: Vec<RowMeta>,
    in_flight: VecDeque<Outcome>,
    lengths: Vec<u32>,
    recorder: Recorder<Vec<u8>>,
    is_checking: bool,
}

impl Harness {
    pub fn new(config: &Config) -> Self {
        let core = Core::new(config).unwrap();
        Self {
            verifier: Verifier::new(core.geometry().clone()),
            answers: BTreeMap::new(),
            digests: Vec::new(),
            rows: Vec::new(),
            in_flight: VecDeque::new(),
            lengths: vec![0; config.max_batch as usize + 1],
            recorder: Recorder::new(Vec::new(), config).unwrap(),
            is_checking: true,
            core,
        }
    }

    pub fn submit(&mut self, request: NewRequest) -> Result<(), SubmitError> {
        self.core.inbox().submit(request.clone())?;
        self.recorder.push(&Record::Submit(request.clone())).unwrap();
        // An id that lives is refused later: the first keeps its account.
        if self.answers.get(&request.id).is_none_or(|answer| answer.finished.is_some()) {
            self.verifier.submit(&request);
            self.answers.insert(request.id, Answer::default());
        }
        Ok(())
    }

    pub fn cancel(&mut self, request: u64) {
        self.core.inbox().cancel(request).unwrap();
        self.recorder.push(&Record::Cancel(request)).unwrap();
    }

    /// Plans a step; `accept` says how many tokens a decode row emits. With an overlap the outcome
    /// stays in flight until the next plan is there.
    pub fn step(&mut self, mut accept: impl FnMut(&RowMeta) -> u32) {
        let depth = self.core.geometry().config.overlap_depth as usize;
        while self.in_flight.len() > depth {
            self.complete();
        }
        let plan = self.core.step().unwrap();
        self.digests.push(digest(plan));
        self.recorder.push(&Record::Step(digest(plan))).unwrap();
        self.rows = plan.rows().to_vec();
        let mut outcome = Outcome::default();
        outcome.begin(plan.step());
        for row in plan.rows() {
            let (least, most) = row.emits();
            let count = accept(row).clamp(least, most);
            let length = &mut self.lengths[row.row as usize];
            if row.has(paceline::kernels::FLAG_BOUND) {
                *length = row.start;
            }
            let prefill = row.has(paceline::kernels::FLAG_PREFILL);
            *length += if prefill { row.tokens } else { count };
            let first = *length + 1 - count;
            let tokens = (first..first + count).map(|position| token(row.request(), position));
            outcome.push_row(&tokens.collect::<Vec<_>>());
        }
        self.note();
        self.verifier.step(self.core.plan(), &outcome);
        if !outcome.counts.is_empty() {
            self.in_flight.push_back(outcome);
        }
        if self.is_checking {
            self.check();
        }
        if depth == 0 {
            self.complete();
        }
    }

    /// Hands back the oldest outcome in flight.
    pub fn complete(&mut self) {
        if let Some(outcome) = self.in_flight.pop_front() {
            self.core.complete(&outcome).unwrap();
            self.recorder.push(&Record::Outcome(outcome)).unwrap();
        }
    }

    /// Hands back something else than the step expects: it must be refused and change nothing.
    pub fn complete_wrongly(&mut self, mangle: impl FnOnce(&mut Outcome)) -> Option<OutcomeError> {
        let mut outcome = self.in_flight.front()?.clone();
        mangle(&mut outcome);
        self.core.complete(&outcome).err()
    }

    /// Steps until nothing is left to do.
    pub fn drain(&mut self, mut accept: impl FnMut(&RowMeta) -> u32) {
        for _ in 0..100_000 {
            while self.rows.is_empty() && !self.in_flight.is_empty() {
                self.complete();
            }
            if self.core.is_idle() {
                return;
            }
            self.step(&mut accept);
        }
        panic!("no end after 100,000 steps: {:?} requests wait and run", self.core.load());
    }

    pub fn answer(&self, request: u64) -> &Answer {
        &self.answers[&request]
    }

    /// Pages of each group that somebody holds.
    pub fn held(&mut self) -> Vec<u32> {
        let geometry = self.core.geometry().clone();
        let pages = self.core.pages();
        let held = geometry.groups.iter().zip(pages).map(|(g, p)| g.pages - p.free - p.cached);
        held.collect()
    }

    /// Everything that was put in, as a file that `paceline replay` takes.
    pub fn recording(&self) -> Vec<u8> {
        self.recorder.get_ref().clone()
    }

    /// Replays everything that was put in: the same plans, no violation.
    pub fn replays(&self) {
        let replayed = replay(self.recording().as_slice(), true).unwrap();
        assert_eq!(replayed.steps as usize, self.digests.len());
        assert_eq!(replayed.found, Vec::<String>::new());
    }

    fn note(&mut self) {
        let plan = self.core.plan();
        for output in plan.outputs() {
            let answer = self.answers.get_mut(&output.request).unwrap();
            answer.tokens.extend_from_slice(output.tokens);
        }
        for event in plan.events() {
            match event {
                Event::Admitted { request, matched_tokens, claimed_tokens, draft_window } => {
                    let answer = self.answers.get_mut(request).unwrap();
                    answer.matched.get_or_insert(*matched_tokens);
                    if answer.claimed.is_none() {
                        answer.claimed = Some(*claimed_tokens);
                        answer.window = *draft_window;
                    }
                }
                Event::Preempted { request } => {
                    self.answers.get_mut(request).unwrap().preempted += 1;
                }
                Event::Finished { request, reason, computed_tokens, .. } => {
                    let answer = self.answers.get_mut(request).unwrap();
                    assert_eq!(answer.finished, None, "request {request} ends once");
                    answer.finished = Some(*reason);
                    answer.computed = *computed_tokens;
                }
                _ => {}
            }
        }
    }

    fn check(&mut self) {
        let (found, _) = self.verifier.violations();
        let broken: Vec<String> = found.iter().cloned().chain(self.core.audit()).collect();
        if !broken.is_empty() {
            let path =
                std::env::temp_dir().join(format!("paceline-{}.recording", std::process::id()));
            std::fs::write(&path, self.recording()).unwrap();
            panic!("{broken:#?}\nreplay with: paceline replay {} --check", path.display());
        }
    }
}

/// The token a request says at a position, whatever the schedule: plain decoding.
pub fn token(request: u64, position: u32) -> u32 {
    1000 + (request as u32).wrapping_mul(7919).wrapping_add(position.wrapping_mul(104_729)) % 50_000
}

/// A prompt nobody else has.
pub fn text(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|token| seed.wrapping_mul(1_000_003).wrapping_add(token)).collect()
}
