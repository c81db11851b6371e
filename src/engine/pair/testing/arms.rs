//! Faults on purpose: prompts whose context rows did not reach the drafter.

use std::ops::Range;

use super::super::kv::{Buffer, Kind, KvPages, Owner};
use super::reference::Reference;

/// What became of the drafter's rows of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// All are there.
    Full,
    /// None is there, and the drafter knows.
    Empty,
    /// Only the newest are there, and the drafter knows.
    Newest(usize),
    /// The newest are missing, and the drafter knows.
    MissingNewest(usize),
    /// All are read, and are zero.
    Zeros,
    /// All are read, and belong to the previous request of the batch.
    Stale,
}

impl Arm {
    /// Context positions the drafter must not read.
    #[must_use]
    pub fn hidden(self, prompt: usize) -> Range<usize> {
        match self {
            Self::Full | Self::Zeros | Self::Stale => 0..0,
            Self::Empty => 0..prompt,
            Self::Newest(tokens) => 0..prompt.saturating_sub(tokens),
            Self::MissingNewest(tokens) => prompt.saturating_sub(tokens)..prompt,
        }
    }
}

impl Reference<'_> {
    /// Applies the arms of requests whose prompt is done. A stale request waits for the rest of the
    /// batch, whose rows it gets.
    pub(super) fn settle(&mut self) {
        let all = self.sessions.iter().all(|session| !session.prefilling());
        let donors: Vec<Vec<f32>> = if all && self.sessions.iter().any(|s| !s.settled) {
            (0..self.sessions.len()).map(|i| self.window_rows(i)).collect()
        } else {
            Vec::new()
        };
        for i in 0..self.sessions.len() {
            let session = &self.sessions[i];
            if session.prefilling() || session.settled {
                continue;
            }
            match session.request.arm {
                Arm::Zeros => self.overwrite_window(i, &[]),
                Arm::Stale if !all => continue,
                Arm::Stale => {
                    let donor = (i + donors.len() - 1) % donors.len();
                    self.overwrite_window(i, &donors[donor]);
                }
                _ => {}
            }
            self.sessions[i].settled = true;
        }
    }

    /// Positions of the prompt a block can still read, in each buffer.
    fn window(&self, i: usize) -> impl Iterator<Item = (Buffer, usize)> + use<> {
        let end = self.sessions[i].request.prompt.len();
        let start = end.saturating_sub(self.pair.config.window);
        (0..self.pair.config.d_layers)
            .flat_map(|layer| {
                [Kind::Key, Kind::Value].map(|kind| Buffer { owner: Owner::Draft, layer, kind })
            })
            .flat_map(move |buffer| (start..end).map(move |position| (buffer, position)))
    }

    fn window_rows(&self, i: usize) -> Vec<f32> {
        if self.sessions[i].settled {
            return Vec::new();
        }
        let dim = self.pair.config.draft_shape().kv_dim();
        self.window(i)
            .flat_map(|(buffer, position)| &self.pages.rows(i, buffer, position)[..dim])
            .copied()
            .collect()
    }

    fn overwrite_window(&mut self, i: usize, values: &[f32]) {
        let dim = self.pair.config.draft_shape().kv_dim();
        let mut values = values.chunks_exact(dim);
        for (buffer, position) in self.window(i) {
            let row = &mut self.pages.rows_mut(i, buffer, position)[..dim];
            match values.next() {
                Some(value) => row.copy_from_slice(value),
                None => row.fill(0.0),
            }
        }
    }
}
