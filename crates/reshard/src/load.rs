//! How much each rank sends and receives, so that work goes to those with the least.

use std::collections::HashMap;

/// Bytes sent and received so far by each rank.
#[derive(Debug, Default)]
pub(crate) struct Load {
    sent: HashMap<usize, usize>,
    received: HashMap<usize, usize>,
}

impl Load {
    pub(crate) fn sent(&self, rank: usize) -> usize {
        self.sent.get(&rank).copied().unwrap_or(0)
    }

    pub(crate) fn received(&self, rank: usize) -> usize {
        self.received.get(&rank).copied().unwrap_or(0)
    }

    /// Notes a message; a local copy is none.
    pub(crate) fn add(&mut self, source: usize, target: usize, len_bytes: usize) {
        if source != target {
            let sent = self.sent.entry(source).or_default();
            let received = self.received.entry(target).or_default();
            for total in [sent, received] {
                *total = total.saturating_add(len_bytes);
            }
        }
    }
}

/// The level to which work of `total` fills up loads given in ascending order, as water would.
pub(crate) fn water_level(loads: &[usize], total: usize) -> usize {
    let mut below = total;
    for (count, &load) in loads.iter().enumerate() {
        // The first `count` loads can take everything without rising above the next one.
        if count > 0 && below <= load.saturating_mul(count) {
            return below.div_ceil(count);
        }
        below = below.saturating_add(load);
    }
    below.div_ceil(loads.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn water_fills_the_lowest_places_first() {
        assert_eq!(water_level(&[0, 0, 0, 0], 12), 3);
        assert_eq!(water_level(&[0, 10], 6), 6);
        assert_eq!(water_level(&[0, 10], 14), 12);
        assert_eq!(water_level(&[5], 2), 7);
        assert_eq!(water_level(&[0, 0, 100], 3), 2);
        assert_eq!(water_level(&[4, 4], 0), 4);
    }
}
