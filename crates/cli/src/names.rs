//! Names of tensors in the order people count in.

/// A part of a name; numbers are in the order of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part<'a> {
    Number(u64, &'a str),
    Word(&'a str),
}

impl<'a> Part<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        match text.parse() {
            Ok(number) => Part::Number(number, text),
            Err(_) => Part::Word(text),
        }
    }

    pub(crate) fn text(self) -> &'a str {
        let (Part::Number(_, text) | Part::Word(text)) = self;
        text
    }
}

/// What names are sorted by: part by part, layer 2 before layer 10.
pub(crate) fn natural(name: &str) -> Vec<Part<'_>> {
    name.split('.').map(Part::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_in_the_order_of_their_numbers() {
        let mut names = ["h.10.w", "norm", "h.2.w", "h.02.w", "h"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["h", "h.02.w", "h.2.w", "h.10.w", "norm"]);
    }
}
