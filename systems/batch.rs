//! Binding requests to batch rows and taking them off again.

use crate::pages::Pages;
use crate::state::{Agenda, Due, Flights, Running, Waiting};
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemParam;
use paceline_components::{
    Lengths, NO_NODE, NO_SLOT, Request, RowOwner, RowPrefix, RowText, Spans, Text, WaitingText,
};

/// Access to batch rows and the lists that name them.
#[derive(SystemParam)]
pub struct BatchAccess<'w, 's> {
    rows: Query<
        'w,
        's,
        (
            &'static mut RowOwner,
            &'static mut Lengths,
            &'static mut Spans,
            &'static mut RowText,
            &'static mut RowPrefix,
        ),
    >,
    agenda: ResMut<'w, Agenda>,
}

/// Columns of the batch rows; row = batch row, the last is the dummy.
pub struct Batch<'a> {
    /// Who runs.
    pub owners: &'a mut [RowOwner],
    /// How long.
    pub lengths: &'a mut [Lengths],
    /// On which pages.
    pub spans: &'a mut [Spans],
    /// Over which tokens.
    pub texts: &'a mut [RowText],
    /// What they share with the prefix index.
    pub prefix: &'a mut [RowPrefix],
    /// The step being planned.
    pub step: u64,
    /// Whether a step without rows gets a dummy row.
    pub wants_dummy: bool,
    /// Order of the rows in use.
    pub running: &'a mut Running,
    /// Work for later systems.
    pub due: &'a mut Due,
    /// Steps in flight.
    pub flights: &'a mut Flights,
}

impl BatchAccess<'_, '_> {
    /// Calls `work` with the columns.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Batch) -> R) -> R {
        let mut rows = self.rows.contiguous_iter_mut().expect("rows are one dense table");
        let (mut owners, mut lengths, mut spans, mut texts, mut prefix) =
            rows.next().expect("rows live for ever");
        let agenda = &mut *self.agenda;
        work(&mut Batch {
            owners: owners.bypass_change_detection(),
            lengths: lengths.bypass_change_detection(),
            spans: spans.bypass_change_detection(),
            texts: texts.bypass_change_detection(),
            prefix: prefix.bypass_change_detection(),
            step: agenda.step,
            wants_dummy: agenda.wants_dummy,
            running: &mut agenda.running,
            due: &mut agenda.due,
            flights: &mut agenda.flights,
        })
    }

    /// The lists alone.
    pub fn agenda(&mut self) -> &mut Agenda {
        &mut self.agenda
    }
}

impl Batch<'_> {
    /// Puts `request` on a free row with nothing computed.
    pub fn bind(&mut self, entity: Entity, request: &mut Request, text: Text) -> u32 {
        let row = self.running.free_rows.pop_front().expect("the caller saw a free row");
        self.running.bindings += 1;
        let at = row as usize;
        let tokens = text.tokens.len() as u32;
        self.owners[at] = RowOwner {
            request: entity,
            id: request.id,
            arrival: request.arrival,
            class: request.class,
            binding: self.running.bindings,
            slot: NO_SLOT,
            is_announced: false,
            is_seeded: false,
        };
        self.lengths[at] = Lengths {
            prefill_end: tokens,
            known: tokens,
            limit: request.limit_tokens,
            ..Lengths::default()
        };
        self.texts[at].0 = text;
        self.prefix[at] = RowPrefix::default();
        request.row = Some(row);
        let key = (request.class, request.arrival);
        let owners = &self.owners;
        let place = self.running.order.partition_point(|&other| {
            let owner = &owners[other as usize];
            (owner.class, owner.arrival) < key
        });
        self.running.order.insert(place, row);
        self.running.prefills += 1;
        self.due.slotless.push(row);
        row
    }

    /// The step in flight that may still touch the pages of `row`.
    #[must_use]
    pub fn fence(&self, row: u32) -> Option<u64> {
        self.flights.newest().filter(|_| self.lengths[row as usize].in_flight > 0)
    }

    /// Takes the request off `row`: pages, slot and row are free for others, at once or when the
    /// steps in flight have landed. Returns its tokens.
    pub fn release(&mut self, pages: &mut Pages, row: u32) -> Text {
        let at = row as usize;
        let fence = self.fence(row);
        let lengths = std::mem::take(&mut self.lengths[at]);
        pages.release(row, &mut self.spans[at], fence);
        let prefix = std::mem::take(&mut self.prefix[at]);
        pages.index.move_tip(prefix.tip, NO_NODE);
        if lengths.is_prefill() {
            self.running.prefills -= 1;
        }
        let owner = std::mem::replace(&mut self.owners[at], RowOwner::FREE);
        if owner.slot != NO_SLOT {
            self.due.freed_slots.push(owner.slot);
        }
        self.running.order.retain(|&other| other != row);
        self.running.free_rows.push_back(row);
        self.due.tables.push(row);
        self.due.slotless.retain(|&other| other != row);
        self.due.grown.retain(|&(other, _)| other != row);
        std::mem::take(&mut self.texts[at].0)
    }

    /// Takes a request off its row to be computed again later.
    pub fn preempt(
        &mut self,
        pages: &mut Pages,
        row: u32,
        requests: &mut Query<(&mut Request, &mut WaitingText)>,
        waiting: &mut Waiting,
    ) -> u64 {
        let owner = &mut self.owners[row as usize];
        let entity = owner.request;
        let slot = std::mem::replace(&mut owner.slot, NO_SLOT);
        if slot != NO_SLOT {
            self.due.parked_slots.push(slot);
        }
        let text = self.release(pages, row);
        let (mut request, mut waiting_text) =
            requests.get_mut(entity).expect("a row's request lives");
        request.row = None;
        request.preemptions += 1;
        waiting_text.0 = text;
        waiting.insert(request.class, request.arrival, entity);
        request.id
    }
}
