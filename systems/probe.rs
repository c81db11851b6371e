//! Asking what a request would find in the prefix index, without claiming anything: no holder, no
//! age, no statistics change.

use crate::branch_cap::branch_cap;
use crate::matching::Match;
use crate::pages::PageAccess;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use paceline_components::{DraftWindow, Text};

/// What a request would claim if it were admitted alone now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Leading tokens the target could use.
    pub matched_tokens: u32,
    /// Leading tokens it need not compute.
    pub claim_tokens: u32,
    /// What would become of the drafter's window.
    pub draft_window: DraftWindow,
}

/// Access for probes, kept between them.
pub struct Prober(SystemState<PageAccess<'static, 'static>>);

impl Prober {
    /// A prober of `world`.
    #[must_use]
    pub fn new(world: &mut World) -> Self {
        Self(SystemState::new(world))
    }

    /// Probes for `text`, whose keys are known.
    pub fn probe(&mut self, world: &mut World, text: &Text) -> Probe {
        let mut pages = self.0.get_mut(world).expect("the world was built whole");
        pages.with(|pages| {
            let mut found = Match::default();
            found.find(pages, text);
            let decision = branch_cap(pages, &found, text.tokens.len() as u32, u32::MAX);
            Probe {
                matched_tokens: found.tokens,
                claim_tokens: decision.claim_tokens,
                draft_window: decision.window,
            }
        })
    }
}
