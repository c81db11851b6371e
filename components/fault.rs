//! Faults: rules that a test breaks on purpose, each at the one place where the rule lives. With the
//! feature `faults` off, as in every normal build, [`is_broken`] is `false` and compiled out.

/// A rule of kv-cache-rules §10 and the bug that its absence was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// I-1: draft layers land in the target's group.
    SharedGroup,
    /// I-2: a slot is not seeded when its row starts behind a claim.
    Unseeded,
    /// I-3: peers are not compared when they register.
    UncheckedPeer,
    /// I-4: backed positions are counted by valid entries instead of up to the last one.
    CountedExtent,
    /// I-5: warm-up rows inherit their slot's context length.
    WarmUpInherits,
    /// I-6: a windowed draft group gets memory by bytes per token.
    SplitByTokens,
    /// I-7: a claim without the drafter's window is not capped.
    Uncapped,
    /// I-7: a drafter page with unwritten positions is published.
    OpenGate,
    /// I-8: a row's whole table is written when one cell changes.
    WholeRows,
    /// I-9: the extra is `num_extra_kv_tokens` although a drafter's block is wider.
    ShortExtra,
    /// I-10: an explicit wish to share is dropped in silence.
    SilentFallback,
    /// I-11: whoever starts the workers decides for them.
    LauncherJudges,
    /// I-12: a dummy row takes a real drafter slot.
    DummyInherits,
    /// I-13: the plan does not say how far a row is backed.
    NoHostBound,
    /// I-14: a window is only looked for at full pages.
    AlignedOnly,
    /// I-14: a partial page is written without a copy.
    SharedWrite,
}

#[cfg(feature = "faults")]
thread_local! {
    static BROKEN: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Breaks a rule for everything this thread does until it is given another, or none.
#[cfg(feature = "faults")]
pub fn break_rule(fault: Option<Fault>) {
    BROKEN.set(fault);
}

/// Whether a rule is broken on purpose.
#[cfg(feature = "faults")]
#[must_use]
pub fn is_broken(fault: Fault) -> bool {
    BROKEN.get() == Some(fault)
}

/// Whether a rule is broken on purpose: never, in this build.
#[cfg(not(feature = "faults"))]
#[must_use]
pub const fn is_broken(_: Fault) -> bool {
    false
}
