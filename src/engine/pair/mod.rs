//! A small real target and its block drafter, on the CPU.
//!
//! The model owns weights and arithmetic, nothing else: K and V live in the caller's pages
//! ([`KvPages`]), and which tokens run at which positions is the caller's plan. One step of a server:
//!
//! 1. [`Drafter::draft`] blocks at the anchors,
//! 2. [`Target::forward`] over prefill chunks and `[anchor, drafts..]` rows together,
//! 3. [`verify`](verify::verify) each row of drafts,
//! 4. [`Drafter::store_context`] for the chunks, and for anchor and accepted drafts.

mod attention;
mod config;
mod context;
mod drafter;
mod embedded;
mod error;
mod kernels;
mod kv;
mod layer;
mod markov;
mod matmul;
mod pair_files;
pub mod prompts;
pub mod random;
mod rotary;
pub mod sample;
mod segment;
mod target;
pub mod testing;
mod tile;
pub mod tokenizer;
pub mod verify;
mod vocabulary;
mod weights;
mod workers;

pub use config::{LayerShape, PairConfig, Specials};
pub use context::ContextRow;
pub use drafter::{DraftOutput, DraftRow, Drafter};
pub use embedded::embedded_prompts;
pub use error::PairError;
pub use kv::{Buffer, Kind, KvPages, Owner};
pub use pair_files::{Pair, PairBytes};
pub use sample::Sampling;
pub use target::{Logits, Target, TargetOutput, TargetRow, Workspace};
pub use workers::Workers;
