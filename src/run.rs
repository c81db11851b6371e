//! Serves a workload: submits its requests when they are due, steps core and engine, and keeps the
//! account of every request in the engine's own time.
//!
//! Nothing here reads a clock except to measure the host time of a step, which decides nothing.

use crate::engine::{Engine, EngineError};
use crate::record::{Record, Recorder, digest};
use crate::workload::{Turn, Workload};
use crate::{
    Core, DraftWindow, Event, FinishReason, NewRequest, Outcome, OutcomeError, StepError,
    SubmitError, Verifier,
};
use paceline_kernels::{FLAG_PREFILL, RowMeta};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::Write;
use std::time::Instant;
use thiserror::Error;

/// How to serve.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests kept in flight whatever their arrival; none follows the arrivals.
    pub concurrency: Option<usize>,
    /// Token ids are below this.
    pub vocabulary: u32,
    /// Steps between two audits of all invariants, when verifying.
    pub audit_every: u64,
    /// Whether accounts keep the generated tokens.
    pub keep_texts: bool,
}

impl Options {
    /// Follows the arrivals, keeps no texts.
    #[must_use]
    pub fn new(vocabulary: u32) -> Self {
        Self { concurrency: None, vocabulary, audit_every: 64, keep_texts: false }
    }
}

/// A run that cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The core refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The core refused an outcome.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The recording could not be written.
    #[error("recording: {0}")]
    Record(#[from] std::io::Error),
    /// Nothing runs although requests wait.
    #[error("no progress: {waiting} requests wait and none can run")]
    Stuck {
        /// Requests that wait.
        waiting: usize,
    },
}

/// One request's account, in the engine's time.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its id: its place among the submissions.
    pub id: u64,
    /// When it was submitted.
    pub arrival_ns: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens computed, recomputation included.
    pub computed_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u32,
    /// The tokens themselves, when they are kept.
    pub text: Vec<u32>,
    /// Decode rows it had, and tokens those emitted.
    pub decode: (u64, u64),
    /// Leading tokens the prefix index knew at its first admission.
    pub matched_tokens: u32,
    /// Leading tokens it did not compute.
    pub claimed_tokens: u32,
    /// What became of the drafter's window.
    pub draft_window: DraftWindow,
    /// Whether it was admitted once.
    pub is_admitted: bool,
    /// Times it was preempted.
    pub preemptions: u32,
    /// When its first token was final.
    pub first_ns: Option<u64>,
    /// When it ended.
    pub finish_ns: u64,
    /// How it ended: `finished`, or why it was refused.
    pub outcome: String,
}

impl Account {
    /// Mean tokens of a decode row, its bonus token included.
    #[must_use]
    pub fn accept_length(&self) -> f64 {
        self.decode.1 as f64 / self.decode.0.max(1) as f64
    }
}

/// What a run leaves.
#[derive(Debug, Default)]
pub struct Served {
    /// Every request, in the order of submission.
    pub accounts: Vec<Account>,
    /// Host time of each step: plan and complete.
    pub host_ns: Vec<u64>,
    /// Engine time at the end.
    pub engine_ns: u64,
    /// Time the engine really took.
    pub wall: EngineWall,
    /// Digest of all plans.
    pub digest: u128,
}

/// Time the engine really took, which decides nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineWall {
    /// Of all steps.
    pub total_ns: u64,
    /// Of steps that computed no prompt.
    pub decode_ns: u64,
    /// Tokens those emitted.
    pub decode_tokens: u64,
}

impl EngineWall {
    fn add(&mut self, rows: &[RowMeta], outcome: &Outcome, wall_ns: u64) {
        self.total_ns += wall_ns;
        if !rows.iter().any(|row| row.has(FLAG_PREFILL)) {
            self.decode_ns += wall_ns;
            self.decode_tokens += outcome.tokens.len() as u64;
        }
    }

    /// Tokens a second, of the steps that computed no prompt.
    #[must_use]
    pub fn decode_tokens_per_s(&self) -> f64 {
        self.decode_tokens as f64 * 1e9 / self.decode_ns.max(1) as f64
    }
}

/// A run in progress.
pub struct Run<'a, E, W: Write> {
    core: &'a mut Core,
    engine: &'a mut E,
    verifier: Option<&'a mut Verifier>,
    recorder: Option<&'a mut Recorder<W>>,
    options: Options,
    workload: &'a Workload,
    sessions: Vec<SessionState>,
    /// Turns to submit: when, and whose.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    live: HashMap<u64, usize>,
    now_ns: u64,
    served: Served,
}

#[derive(Default)]
struct SessionState {
    next_turn: usize,
    context: Vec<u32>,
}

/// A step that runs on the engine.
struct InFlight {
    outcome: Outcome,
    end_ns: u64,
}

impl<'a, E: Engine, W: Write> Run<'a, E, W> {
    /// Prepares to serve `workload` with `core` and `engine`.
    pub fn new(
        core: &'a mut Core,
        engine: &'a mut E,
        workload: &'a Workload,
        options: Options,
    ) -> Self {
        let mut due = BinaryHeap::new();
        for (index, session) in workload.sessions.iter().enumerate() {
            let first_delay = session.turns.first().map_or(0, |turn| turn.delay_ns);
            due.push(Reverse((session.start_ns + first_delay, index)));
        }
        let mut sessions = Vec::new();
        sessions.resize_with(workload.sessions.len(), SessionState::default);
        Self {
            core,
            engine,
            verifier: None,
            recorder: None,
            options,
            workload,
            sessions,
            due,
            live: HashMap::new(),
            now_ns: 0,
            served: Served::default(),
        }
    }

    /// Follows every page with `verifier`.
    #[must_use]
    pub fn verify(mut self, verifier: &'a mut Verifier) -> Self {
        self.verifier = Some(verifier);
        self
    }

    /// Records every input.
    #[must_use]
    pub fn record(mut self, recorder: &'a mut Recorder<W>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Serves the workload to its end; calls `progress` with requests ended after each step.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn serve(mut self, mut progress: impl FnMut(u64)) -> Result<Served, RunError> {
        let depth = self.core.geometry().config.overlap_depth as usize;
        let mut in_flight: VecDeque<InFlight> = VecDeque::new();
        let mut engine_end_ns = 0;
        loop {
            self.submit_due()?;
            let host = Instant::now();
            let plan = self.core.step()?;
            let mut host_ns = host.elapsed();
            let digest = digest(plan);
            self.served.digest = self.served.digest.rotate_left(1) ^ digest;
            self.push(|| Record::Step(digest))?;
            self.note_events();
            let has_rows = !self.core.plan().rows().is_empty();
            let mut outcome = Outcome::default();
            outcome.begin(self.core.plan().step());
            let time_ns = self.run_engine(&mut outcome)?;
            self.check(&outcome);
            if has_rows {
                engine_end_ns = self.now_ns.max(engine_end_ns) + time_ns;
                self.count_decodes(&outcome);
                in_flight.push_back(InFlight { outcome, end_ns: engine_end_ns });
            }
            if in_flight.len() > if has_rows { depth } else { 0 } {
                let done = in_flight.pop_front().expect("just counted");
                self.now_ns = done.end_ns;
                let host = Instant::now();
                self.core.complete(&done.outcome)?;
                host_ns += host.elapsed();
                self.push(|| Record::Outcome(done.outcome))?;
            } else if !has_rows && !self.wait()? {
                break;
            }
            if has_rows {
                self.served.host_ns.push(host_ns.as_nanos() as u64);
            }
            progress(self.core.stats().finished);
        }
        self.served.engine_ns = self.now_ns;
        Ok(self.served)
    }

    fn run_engine(&mut self, outcome: &mut Outcome) -> Result<u64, RunError> {
        let plan = self.core.plan();
        if plan.rows().is_empty() {
            self.engine.skip(plan);
            return Ok(0);
        }
        let wall = Instant::now();
        let time_ns = self.engine.run(plan, outcome)?;
        let wall_ns = wall.elapsed().as_nanos() as u64;
        self.served.wall.add(plan.rows(), outcome, wall_ns);
        Ok(time_ns)
    }

    fn push(&mut self, record: impl FnOnce() -> Record) -> Result<(), RunError> {
        match &mut self.recorder {
            Some(recorder) => Ok(recorder.push(&record())?),
            None => Ok(()),
        }
    }

    /// Nothing runs: time passes until the next request is due. No more requests: the end.
    fn wait(&mut self) -> Result<bool, RunError> {
        let waiting = self.core.load().0;
        if let Some(Reverse((due_ns, _))) = self.due.peek() {
            self.now_ns = self.now_ns.max(*due_ns);
            return Ok(true);
        }
        if waiting > 0 {
            return Err(RunError::Stuck { waiting });
        }
        Ok(false)
    }

    fn submit_due(&mut self) -> Result<(), RunError> {
        while let Some(&Reverse((due_ns, session))) = self.due.peek() {
            let is_due = match self.options.concurrency {
                Some(most) => self.live.len() < most,
                None => due_ns <= self.now_ns,
            };
            if !is_due {
                break;
            }
            self.due.pop();
            let arrival_ns = if self.options.concurrency.is_some() { self.now_ns } else { due_ns };
            self.submit(session, arrival_ns)?;
        }
        Ok(())
    }

    fn submit(&mut self, session: usize, arrival_ns: u64) -> Result<(), RunError> {
        let state = &mut self.sessions[session];
        let turn: &Turn = &self.workload.sessions[session].turns[state.next_turn];
        state.next_turn += 1;
        turn.input.append_to(self.options.vocabulary, &mut state.context);
        let id = self.served.accounts.len() as u64;
        let request = NewRequest::new(id, state.context.clone(), turn.output_tokens)
            .class(self.workload.sessions[session].priority);
        self.served.accounts.push(Account {
            id,
            arrival_ns,
            prompt_tokens: request.prompt.len() as u32,
            ..Account::default()
        });
        match self.core.inbox().submit(request.clone()) {
            Ok(()) => {
                self.live.insert(id, session);
                if let Some(verifier) = &mut self.verifier {
                    verifier.submit(&request);
                }
                self.push(|| Record::Submit(request))
            }
            Err(error) if error.is_temporary() => {
                // The queue is full: the turn comes again when something has ended.
                self.served.accounts.pop();
                let state = &mut self.sessions[session];
                state.next_turn -= 1;
                state.context.truncate(state.context.len() - turn.input.tokens() as usize);
                self.due.push(Reverse((self.now_ns + 1, session)));
                Ok(())
            }
            Err(error) => {
                self.refuse(id, session, &error);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, id: u64, session: usize, error: &SubmitError) {
        let account = &mut self.served.accounts[id as usize];
        account.outcome = format!("refused: {error}");
        account.finish_ns = self.now_ns;
        self.follow_up(session);
    }

    /// The session's next turn is due after its delay.
    fn follow_up(&mut self, session: usize) {
        let state = &self.sessions[session];
        if let Some(turn) = self.workload.sessions[session].turns.get(state.next_turn) {
            self.due.push(Reverse((self.now_ns + turn.delay_ns, session)));
        }
    }

    fn note_events(&mut self) {
        let plan = self.core.plan();
        for output in plan.outputs() {
            let account = &mut self.served.accounts[output.request as usize];
            account.first_ns.get_or_insert(self.now_ns);
            account.output_tokens += output.tokens.len() as u32;
            if self.options.keep_texts {
                account.text.extend_from_slice(output.tokens);
            }
            let session = self.live[&output.request];
            self.sessions[session].context.extend_from_slice(output.tokens);
        }
        let mut ended = Vec::new();
        for event in plan.events() {
            match event {
                Event::Finished { request, reason, computed_tokens, preemptions, .. } => {
                    let account = &mut self.served.accounts[*request as usize];
                    account.computed_tokens = *computed_tokens;
                    account.preemptions = *preemptions;
                    account.finish_ns = self.now_ns;
                    account.outcome = match reason {
                        FinishReason::Cancelled => "cancelled".to_owned(),
                        _ => "finished".to_owned(),
                    };
                    ended.push(*request);
                }
                Event::Admitted { request, matched_tokens, claimed_tokens, draft_window } => {
                    let account = &mut self.served.accounts[*request as usize];
                    if !std::mem::replace(&mut account.is_admitted, true) {
                        account.matched_tokens = *matched_tokens;
                        account.claimed_tokens = *claimed_tokens;
                        account.draft_window = *draft_window;
                    }
                }
                Event::Refused { request, error } => {
                    self.served.accounts[*request as usize].outcome = format!("refused: {error}");
                    ended.push(*request);
                }
                _ => {}
            }
        }
        for request in ended {
            if let Some(session) = self.live.remove(&request) {
                self.follow_up(session);
            }
        }
    }

    fn check(&mut self, outcome: &Outcome) {
        let Some(verifier) = &mut self.verifier else { return };
        verifier.step(self.core.plan(), outcome);
        if outcome.step.is_multiple_of(self.options.audit_every) {
            for broken in self.core.audit() {
                verifier.report(format!("step {}: {broken}", outcome.step));
            }
        }
    }

    fn count_decodes(&mut self, outcome: &Outcome) {
        for (row, count) in self.core.plan().rows().iter().zip(&outcome.counts) {
            if row.is_decode() {
                let decode = &mut self.served.accounts[row.request() as usize].decode;
                decode.0 += 1;
                decode.1 += u64::from(*count);
            }
        }
    }
}
