//! Lists in messages.

use super::Skipped;

/// Names as messages show them.
pub(super) fn quoted(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// `0, 1, 2 … (+97 more)`: a list that stays readable.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    const SHOWN: usize = 16;
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text.push_str(&format!(" … (+{} more)", items.len() - SHOWN));
    }
    text
}

pub(super) fn skipped_text(skipped: &[Skipped]) -> String {
    let lines: Vec<String> = skipped
        .iter()
        .map(|skip| format!("\n  step {}: {}", skip.step, skip.reason))
        .collect();
    lines.concat()
}
