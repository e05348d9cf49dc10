//! What a plan costs before anything moves.

use std::collections::HashMap;

use crate::Action;

/// Bytes and messages of a plan or a step; sums that are too large stay at the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes that go from one rank to another.
    pub moved_bytes: usize,
    /// Bytes copied within a rank.
    pub local_bytes: usize,
    /// The most bytes one rank sends.
    pub max_sent_bytes: usize,
    /// The most bytes one rank receives.
    pub max_received_bytes: usize,
    /// Boxes that go from one rank to another.
    pub messages: usize,
}

impl Cost {
    pub(crate) fn of<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Cost {
        let mut cost = Cost::default();
        let mut sent: HashMap<usize, usize> = HashMap::new();
        let mut received: HashMap<usize, usize> = HashMap::new();
        for action in actions {
            if let Action::Copy(transfer) = action
                && transfer.is_local()
            {
                cost.local_bytes = cost.local_bytes.saturating_add(transfer.len_bytes);
            }
            for (source, target, len_bytes) in action.messages() {
                cost.moved_bytes = cost.moved_bytes.saturating_add(len_bytes);
                cost.messages += 1;
                for total in [
                    sent.entry(source).or_default(),
                    received.entry(target).or_default(),
                ] {
                    *total = total.saturating_add(len_bytes);
                }
            }
        }
        cost.max_sent_bytes = sent.into_values().max().unwrap_or(0);
        cost.max_received_bytes = received.into_values().max().unwrap_or(0);
        cost
    }
}
