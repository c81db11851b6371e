//! The core: a world, its schedule, and the few calls an embedder makes.

use crate::{Config, ConfigError, Geometry, Outcome, OutcomeError};
use bevy_ecs::prelude::{Schedule, World};
use bevy_ecs::system::SystemState;
use crossbeam::queue::ArrayQueue;
use paceline_components::{
    Cached, DraftWindow, Event, Fact, FreeSlots, KeyChain, Ledger, NewRequest, PublishPolicy,
    RowOwner, RowText, StepNotes, SubmitError, Text,
};
use paceline_kernels::{LaunchList, RowMeta};
use paceline_systems::{
    Agenda, BatchAccess, Cache, Command, Ingress, PageAccess, Probe, Prober, Stats, StepPlan,
    Submission, Waiting, WarmUp, WarmUpError, audit, build, schedule, warm_up, withdraw,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use thiserror::Error;

/// A scheduling core. Synchronous, single-threaded, without clock or I/O: the same inputs give the
/// same plans, byte for byte.
pub struct Core {
    world: World,
    schedule: Schedule,
    geometry: Arc<Geometry>,
    inbox: Inbox,
    prober: Prober,
    rows: SystemState<(BatchAccess<'static, 'static>, PageAccess<'static, 'static>)>,
    is_poisoned: bool,
}

/// Sends requests and cancels to a core from any thread.
#[derive(Clone, Debug)]
pub struct Inbox {
    queue: Arc<ArrayQueue<Command>>,
    waiting: Arc<std::sync::atomic::AtomicU32>,
    geometry: Arc<Geometry>,
}

/// What one step hands out: device work, rows, events. Valid until the next call to the core.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    launches: &'a LaunchList,
    notes: &'a StepNotes,
}

/// A plan kept beyond the next call to the core.
#[derive(Clone, Debug)]
pub struct OwnedPlan {
    launches: LaunchList,
    notes: StepNotes,
}

impl OwnedPlan {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> Plan<'_> {
        Plan { launches: &self.launches, notes: &self.notes }
    }
}

/// Why a step was not planned. The world is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// More steps are in flight than the overlap depth allows.
    #[error(
        "step {step} is still in flight and overlap_depth = {overlap_depth}: \
         complete it before the next step"
    )]
    OutcomeMissing {
        /// The oldest step in flight.
        step: u64,
        /// The limit.
        overlap_depth: u32,
    },
    /// A panic inside an earlier step left the world half changed.
    #[error("an earlier step panicked: the core is poisoned; build a new one")]
    Poisoned,
}

/// What a step emitted for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// The request.
    pub request: u64,
    /// Its next tokens.
    pub tokens: &'a [u32],
}

impl Core {
    /// Describes a core to build; see [`Builder`](crate::Builder).
    pub fn builder() -> crate::Builder {
        crate::Builder::default()
    }

    /// Builds a core for `config`.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let geometry = Arc::new(Geometry::new(config)?);
        let mut world = build(geometry.clone());
        let mut schedule = schedule();
        schedule.initialize(&mut world).expect("the schedule is ordered without ambiguity");
        let ingress = world.resource::<Ingress>().clone();
        let inbox =
            Inbox { queue: ingress.queue, waiting: ingress.waiting, geometry: geometry.clone() };
        let prober = Prober::new(&mut world);
        let rows = SystemState::new(&mut world);
        Ok(Self { world, schedule, geometry, inbox, prober, rows, is_poisoned: false })
    }

    /// A handle to submit and cancel with.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// The limits of the core.
    #[must_use]
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// Plans the next step. A plan without rows is no step in flight: there is nothing to
    /// complete, but its launches may still take pages out of block tables.
    ///
    /// # Errors
    /// When more steps are in flight than the overlap depth allows, or the core is poisoned.
    pub fn step(&mut self) -> Result<Plan<'_>, StepError> {
        if self.is_poisoned {
            return Err(StepError::Poisoned);
        }
        let flights = &self.world.resource::<Agenda>().flights;
        let in_flight = flights.queue.iter().filter(|flight| !flight.has_landed);
        let overlap_depth = self.geometry.config.overlap_depth;
        if let Some(oldest) = in_flight.clone().next()
            && in_flight.count() > overlap_depth as usize
        {
            return Err(StepError::OutcomeMissing { step: oldest.step, overlap_depth });
        }
        self.is_poisoned = true;
        let _span = tracing::trace_span!("step").entered();
        let mut agenda = self.world.resource_mut::<Agenda>();
        agenda.step += 1;
        let step = agenda.step;
        self.world.resource_mut::<StepPlan>().begin(step);
        self.world.resource_mut::<Cache>().facts.clear();
        self.schedule.run(&mut self.world);
        self.world.clear_trackers();
        self.is_poisoned = false;
        Ok(self.plan())
    }

    /// Plans the next step of ranks that step together: without rows of its own it has one dummy
    /// row, and nothing of this rank changes.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    ///
    /// # Panics
    /// When the configuration does not say `attention_dp`: there is no page for the dummy.
    pub fn step_together(&mut self) -> Result<Plan<'_>, StepError> {
        assert!(self.geometry.config.attention_dp, "attention_dp = true is needed");
        self.world.resource_mut::<Agenda>().wants_dummy = true;
        let result = self.step().map(|_| ());
        self.world.resource_mut::<Agenda>().wants_dummy = false;
        result.map(|()| self.plan())
    }

    /// Takes back the last planned step, which does not run: ranks that step together did not all
    /// agree. Its launches must still be submitted, its outcome is not handed back, and growth is
    /// undone exactly. Says whether there was such a step.
    pub fn withdraw(&mut self) -> bool {
        withdraw(&mut self.world, &mut self.rows)
    }

    /// Plans a batch of `shape` for the engine to capture or compile with, calls `run` with it, and
    /// leaves counters, prefix index and pools as they were.
    ///
    /// # Errors
    /// When requests wait or run, or the shape exceeds a limit or the pools.
    pub fn warm_up(
        &mut self,
        shape: WarmUp,
        run: impl FnOnce(Plan<'_>),
    ) -> Result<(), WarmUpError> {
        if !self.is_idle() {
            return Err(WarmUpError::Busy);
        }
        let mut agenda = self.world.resource_mut::<Agenda>();
        agenda.step += 1;
        let step = agenda.step;
        self.world.resource_mut::<StepPlan>().begin(step);
        warm_up(&mut self.world, &mut self.rows, shape)?;
        run(self.plan());
        Ok(())
    }

    /// The plan of the last step.
    #[must_use]
    pub fn plan(&self) -> Plan<'_> {
        let plan = self.world.resource::<StepPlan>();
        Plan { launches: &plan.launches, notes: &plan.notes }
    }

    /// Hands back what a step's rows emitted; the next step takes it in. Outcomes come in the order
    /// of their steps.
    ///
    /// # Errors
    /// When the outcome does not fit the step; the step then stays in flight.
    pub fn complete(&mut self, outcome: &Outcome) -> Result<(), OutcomeError> {
        let step = outcome.step;
        let flights = &mut self.world.resource_mut::<Agenda>().into_inner().flights;
        let Some(flight) = flights.queue.iter_mut().find(|flight| !flight.has_landed) else {
            return Err(OutcomeError::NothingInFlight { step });
        };
        if flight.step != step {
            return Err(OutcomeError::WrongStep { step, expected: flight.step });
        }
        let (counts, rows) = (outcome.counts.len(), flight.rows.len());
        if counts != rows {
            return Err(OutcomeError::RowCount { step, counts, rows });
        }
        let mut expected = 0;
        for (row, (flown, &count)) in flight.rows.iter().zip(&outcome.counts).enumerate() {
            let (least, most) = flown.emits;
            if count < least || count > most {
                let request = flown.request;
                return Err(OutcomeError::Count { step, row, request, count, least, most });
            }
            expected += count as usize;
        }
        if outcome.tokens.len() != expected {
            return Err(OutcomeError::TokenCount { step, tokens: outcome.tokens.len(), expected });
        }
        flight.outcome.begin(step);
        flight.outcome.counts.extend_from_slice(&outcome.counts);
        flight.outcome.tokens.extend_from_slice(&outcome.tokens);
        flight.has_landed = true;
        Ok(())
    }

    /// Pages that became findable or ceased to be in the last step, in order.
    #[must_use]
    pub fn facts(&self) -> &[Fact] {
        &self.world.resource::<Cache>().facts
    }

    /// What a request would claim if it were admitted alone now. Nothing is claimed or touched.
    pub fn probe(&mut self, request: &NewRequest) -> Probe {
        if request.prompt.is_empty() || self.geometry.config.publish == PublishPolicy::Off {
            let draft_window = DraftWindow::None;
            return Probe { matched_tokens: 0, claim_tokens: 0, draft_window };
        }
        let chain = self.inbox.keys(request);
        let text = Text { tokens: request.prompt.clone(), chain, ..Text::default() };
        self.prober.probe(&mut self.world, &text)
    }

    /// Whether nothing waits, runs or is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.world.resource::<Waiting>().by_class.is_empty()
            && self.world.resource::<Agenda>().running.order.is_empty()
            && self.world.resource::<Agenda>().flights.queue.is_empty()
            && self.inbox.queue.is_empty()
    }

    /// Counters since the core was built.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.world.resource::<StepPlan>().stats
    }

    /// Requests that wait and rows that run.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let waiting = self.world.resource::<Waiting>().by_class.len();
        (waiting, self.world.resource::<Agenda>().running.order.len())
    }

    /// Page accounts, group by group.
    pub fn pages(&mut self) -> Vec<PageCount> {
        let mut groups = self.world.query::<(&FreeSlots, &Cached, &Ledger)>();
        let count = |(free, cached, ledger): (&FreeSlots, &Cached, &Ledger)| PageCount {
            free: free.0.len() as u32,
            cached: cached.len,
            peak_held: ledger.peak_held,
            claimed_pages: ledger.claimed_pages,
            copied_pages: ledger.copied_pages,
            published_pages: ledger.published_pages,
            evicted_pages: ledger.evicted_pages,
        };
        groups.iter(&self.world).map(count).collect()
    }

    /// Tokens of a running request, prompt first.
    pub fn tokens(&mut self, request: u64) -> Option<Vec<u32>> {
        let mut rows = self.world.query::<(&RowOwner, &RowText)>();
        let mut rows = rows.iter(&self.world);
        rows.find(|(o, _)| !o.is_free() && o.id == request).map(|(_, t)| t.0.tokens.clone())
    }

    /// Checks every invariant of the world; each broken one is a sentence. Costs a pass over all
    /// pages.
    pub fn audit(&mut self) -> Vec<String> {
        audit(&mut self.world)
    }
}

/// Pages of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCount {
    /// Pages nobody holds or can find.
    pub free: u32,
    /// Pages nobody holds that the prefix index names.
    pub cached: u32,
    /// Most pages ever held at once.
    pub peak_held: u32,
    /// Pages claimed from the prefix index as they are.
    pub claimed_pages: u64,
    /// Partial pages claimed by copy.
    pub copied_pages: u64,
    /// Pages made findable.
    pub published_pages: u64,
    /// Cached pages taken for other content.
    pub evicted_pages: u64,
}

impl Inbox {
    /// Submits a request; the next step takes it in.
    ///
    /// # Errors
    /// When it can never run as it is, or too many requests wait.
    pub fn submit(&self, request: NewRequest) -> Result<(), SubmitError> {
        let (id, prompt) = (request.id, request.prompt.len());
        let limit = self.geometry.check_request(id, prompt, request.max_new_tokens)?;
        let max_waiting = self.geometry.config.max_waiting;
        let full = SubmitError::Full { request: id, max_waiting };
        let count = |waiting: u32| (waiting < max_waiting).then_some(waiting + 1);
        if self.waiting.fetch_update(Relaxed, Relaxed, count).is_err() {
            return Err(full);
        }
        let chain = self.keys(&request);
        let submission = Submission { request, limit_tokens: limit, chain };
        self.queue.push(Command::Submit(Box::new(submission))).map_err(|_| {
            self.waiting.fetch_sub(1, Relaxed);
            full
        })
    }

    /// Hashes a prompt, on the caller's thread.
    fn keys(&self, request: &NewRequest) -> KeyChain {
        let mut chain = KeyChain::new(self.geometry.config.page_tokens, request.extra.clone());
        if self.geometry.config.publish != PublishPolicy::Off {
            chain.extend(&request.prompt);
        }
        chain
    }

    /// Ends a request, wherever it is. Cancelling one that has ended does nothing; cancelling one
    /// that was never submitted does nothing either.
    ///
    /// # Errors
    /// When the inbox is full of cancels: let the core step, then try again.
    pub fn cancel(&self, request: u64) -> Result<(), SubmitError> {
        let max_waiting = self.geometry.config.max_waiting;
        let full = SubmitError::Full { request, max_waiting };
        self.queue.push(Command::Cancel(request)).map_err(|_| full)
    }
}

impl<'a> Plan<'a> {
    /// A copy that outlives the next call to the core.
    #[must_use]
    pub fn to_owned_plan(&self) -> OwnedPlan {
        OwnedPlan { launches: self.launches.clone(), notes: self.notes.clone() }
    }

    /// Number of the step.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.launches.step()
    }

    /// Rows of the step: prompts, decode rows, dummy rows. An outcome has one count for each.
    #[must_use]
    pub fn rows(&self) -> &'a [RowMeta] {
        self.launches.rows()
    }

    /// Token ids a prompt row computes.
    #[must_use]
    pub fn inputs(&self, row: &RowMeta) -> &'a [u32] {
        &self.launches.inputs()[row.input as usize..(row.input + row.tokens) as usize]
    }

    /// Device work of the step.
    #[must_use]
    pub fn launches(&self) -> &'a LaunchList {
        self.launches
    }

    /// What happened to requests.
    #[must_use]
    pub fn events(&self) -> &'a [Event] {
        &self.notes.events
    }

    /// Tokens that became final, by request.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'a>> + use<'a> {
        let notes = self.notes;
        notes.emitted.iter().map(|emitted| {
            let range = emitted.first as usize..(emitted.first + emitted.count) as usize;
            Output { request: emitted.request, tokens: &notes.emitted_tokens[range] }
        })
    }
}
