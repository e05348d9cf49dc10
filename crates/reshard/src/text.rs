//! How plans print: one line for each step, and a summary.

use std::fmt;

use crate::{Plan, Step};

/// How many ranks of a step are named.
const NAMED_RANKS: usize = 8;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} → {}", self.source, self.target)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        let cost = self.cost();
        write!(
            f,
            "{} moved in {} messages, {} copied locally; a rank sends at most {} and receives at most {}",
            Bytes(cost.moved_bytes),
            cost.messages,
            Bytes(cost.local_bytes),
            Bytes(cost.max_sent_bytes),
            Bytes(cost.max_received_bytes),
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.ranks.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{} over {count} rank{plural} ", self.collective)?;
        fmt_ranks(f, &self.ranks)?;
        if self.collective.moves_nothing() {
            return f.write_str(": nothing moves");
        }
        let cost = self.cost();
        let per_rank = cost.max_sent_bytes.max(cost.max_received_bytes);
        write!(
            f,
            ": {} moved, {} per rank",
            Bytes(cost.moved_bytes),
            Bytes(per_rank)
        )
    }
}

/// Prints `{0,1,2}`, or `{0,1,2,…,1023}` if there are many.
fn fmt_ranks(f: &mut fmt::Formatter<'_>, ranks: &[usize]) -> fmt::Result {
    let names = |ranks: &[usize]| {
        let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
        names.join(",")
    };
    match ranks {
        [first @ .., last] if first.len() >= NAMED_RANKS => {
            write!(f, "{{{},…,{last}}}", names(&first[..NAMED_RANKS - 1]))
        }
        ranks => write!(f, "{{{}}}", names(ranks)),
    }
}

/// A number of bytes in the unit people would choose.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}
