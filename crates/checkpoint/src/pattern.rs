//! Patterns over tensor names, and the names that nearly match one.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A pattern over whole names: `*` stands for any text, `?` for one character, all else for itself.
///
/// ```
/// use cairn_checkpoint::Pattern;
/// let pattern = Pattern::new("*.q_proj.weight");
/// assert!(pattern.matches("layers.0.q_proj.weight"));
/// assert_eq!(Pattern::new("*.q_porj.*").nearest(["layers.0.q_proj.weight"]), Some("layers.0.q_proj.weight"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    symbols: Vec<char>,
}

impl Pattern {
    /// Reads a pattern; every text is one.
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_string(),
            symbols: text.chars().collect(),
        }
    }

    /// Whether it can match one name only.
    pub fn is_exact(&self) -> bool {
        !self.text.contains(['*', '?'])
    }

    /// Whether `name` as a whole fits.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_exact() {
            return self.text == name;
        }
        let name: Vec<char> = name.chars().collect();
        let symbols = &self.symbols;
        let (mut at, mut read) = (0, 0);
        // The last `*` seen, and how much of the name it stands for so far: on a dead end it takes one more.
        let mut star: Option<(usize, usize)> = None;
        while read < name.len() {
            match symbols.get(at) {
                Some('*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(symbol) if *symbol == '?' || *symbol == name[read] => {
                    at += 1;
                    read += 1;
                }
                _ => {
                    let Some((after, taken)) = star else {
                        return false;
                    };
                    star = Some((after, taken + 1));
                    (at, read) = (after + 1, taken + 1);
                }
            }
        }
        symbols[at..].iter().all(|symbol| *symbol == '*')
    }

    /// The name that fits best among those that nearly do, for "did you mean".
    ///
    /// Names that differ in numbers only count as one, so that many layers are looked at once.
    pub fn nearest<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let letters = self.symbols.iter().filter(|symbol| **symbol != '*').count();
        let most = letters.div_ceil(4);
        let mut seen = HashSet::new();
        names
            .into_iter()
            .filter(|name| seen.insert(name_family(name)))
            .map(|name| (self.distance(name), name))
            .filter(|(distance, _)| *distance <= most)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
    }

    /// How many characters must be added, dropped or changed until the pattern matches `name`.
    fn distance(&self, name: &str) -> usize {
        let name: Vec<char> = name.chars().collect();
        // `row[n]` is the distance from the symbols read so far to the first `n` characters.
        let mut row: Vec<usize> = (0..=name.len()).collect();
        for symbol in &self.symbols {
            let free = *symbol == '*';
            let mut next = Vec::with_capacity(row.len());
            next.push(row[0] + usize::from(!free));
            for (index, character) in name.iter().enumerate() {
                let same = free || *symbol == '?' || symbol == character;
                let changed = row[index] + usize::from(!same);
                let dropped = row[index + 1] + usize::from(!free);
                let added = next[index] + usize::from(!free);
                next.push(changed.min(dropped).min(added));
            }
            row = next;
        }
        row[name.len()]
    }
}

/// A name with every number between dots replaced by `#`: equal for the same tensor of all layers.
pub fn name_family(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = name.split('.');
    let parts: Vec<&str> = parts.map(|p| if is_number(p) { "#" } else { p }).collect();
    parts.join(".")
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

#[cfg(test)]
mod tests {
    //! Matching is compared with a definition by recursion; distance 0 is the same as a match.

    use super::*;
    use proptest::prelude::*;

    fn matches_by_definition(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                (0..=name.len()).any(|taken| matches_by_definition(rest, &name[taken..]))
            }
            (Some((symbol, rest)), Some((character, tail))) => {
                (*symbol == '?' || symbol == character) && matches_by_definition(rest, tail)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_its_definition(pattern in "[ab.ü*?]{0,8}", name in "[ab.ü]{0,10}") {
            let symbols: Vec<char> = pattern.chars().collect();
            let characters: Vec<char> = name.chars().collect();
            let expected = matches_by_definition(&symbols, &characters);
            let pattern = Pattern::new(&pattern);
            prop_assert_eq!(pattern.matches(&name), expected);
            prop_assert_eq!(pattern.distance(&name) == 0, expected);
        }
    }

    #[test]
    fn many_stars_are_matched_in_bounded_time() {
        let pattern = Pattern::new(&"*a".repeat(50));
        assert!(!pattern.matches(&("a".repeat(4000) + "b")));
    }

    #[test]
    fn a_misspelt_pattern_finds_its_name_and_a_strange_one_finds_none() {
        let names = ["layers.0.q_proj.weight", "layers.1.q_proj.weight", "norm"];
        let near = |text| Pattern::new(text).nearest(names);
        assert_eq!(near("*.q_porj.weight"), Some(names[0]));
        assert_eq!(near("layers.7.q_proj.weight"), Some(names[0]));
        assert_eq!(near("nrom"), None);
        assert_eq!(near("orm"), Some("norm"));
        assert_eq!(near("something.else"), None);
    }

    #[test]
    fn only_whole_numbers_between_dots_make_a_family() {
        assert_eq!(name_family("layers.10.w1.0"), "layers.#.w1.#");
        assert_eq!(name_family("h12.x"), "h12.x");
        assert_eq!(name_family(""), "");
        assert_eq!(name_family(".."), "..");
    }
}
