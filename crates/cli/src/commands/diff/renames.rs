//! Tensors of one side that are probably others of the other side, by shapes and by what their names share.

use super::structure::{Lonely, Renamed};
use cairn::checkpoint::name_family;
use std::collections::{BTreeMap, HashMap};

/// What must be equal for two families to be one: the numbers in the names, with the shape of each tensor.
type Shapes<'a> = Vec<(Vec<&'a str>, &'a [usize])>;

/// Families of tensors that only the left side has, with those of the right side they may have become.
///
/// Both have the same layers and shapes, and at least half of the shorter name is found in the other, in order.
pub(super) fn renames(left: &[Lonely], right: &[Lonely]) -> Vec<Renamed> {
    let mut candidates: HashMap<Shapes, Vec<String>> = HashMap::new();
    for (family, shapes) in families(right) {
        candidates.entry(shapes).or_default().push(family);
    }
    let mut renamed = Vec::new();
    for (family, shapes) in families(left) {
        let Some(others) = candidates.get_mut(&shapes) else {
            continue;
        };
        let likeness = |other: &String| shared_parts(&family, other);
        let best = (0..others.len()).max_by_key(|index| likeness(&others[*index]));
        let enough = |index: &usize| {
            let other = &others[*index];
            let parts = family.split('.').count().min(other.split('.').count());
            2 * likeness(other) >= parts
        };
        if let Some(best) = best.filter(enough) {
            renamed.push(Renamed {
                right: others.swap_remove(best),
                left: family,
                count: shapes.len(),
            });
        }
    }
    renamed
}

fn families(tensors: &[Lonely]) -> BTreeMap<String, Shapes<'_>> {
    let mut families: BTreeMap<String, Shapes> = BTreeMap::new();
    for tensor in tensors {
        let is_number = |part: &&str| part.parse::<u64>().is_ok();
        let numbers = tensor.name.split('.').filter(is_number).collect();
        let family = families.entry(name_family(&tensor.name)).or_default();
        family.push((numbers, &tensor.shape));
    }
    families
}

/// The length of the longest common subsequence of the parts of two names.
fn shared_parts(one: &str, other: &str) -> usize {
    let other: Vec<&str> = other.split('.').collect();
    let mut row = vec![0; other.len() + 1];
    for part in one.split('.') {
        let mut diagonal = 0;
        for (index, candidate) in other.iter().enumerate() {
            let above = row[index + 1];
            row[index + 1] = match part == *candidate {
                true => diagonal + 1,
                false => above.max(row[index]),
            };
            diagonal = above;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lonely(names: &[(&str, usize)]) -> Vec<Lonely> {
        let tensor = |(name, len): &(&str, usize)| Lonely {
            name: name.to_string(),
            dtype: "f32".into(),
            shape: vec![*len],
        };
        names.iter().map(tensor).collect()
    }

    fn found(left: &[(&str, usize)], right: &[(&str, usize)]) -> Vec<(String, String, usize)> {
        let renamed = renames(&lonely(left), &lonely(right)).into_iter();
        renamed.map(|r| (r.left, r.right, r.count)).collect()
    }

    #[test]
    fn a_prefix_that_came_or_went_is_a_rename_of_all_layers() {
        let left = [
            ("model.h.0.q.w", 4),
            ("model.h.1.q.w", 4),
            ("model.h.0.k.w", 4),
            ("model.h.1.k.w", 4),
        ];
        let right = [
            ("h.0.k.w", 4),
            ("h.1.k.w", 4),
            ("h.0.q.w", 4),
            ("h.1.q.w", 4),
        ];
        assert_eq!(
            found(&left, &right),
            [
                ("model.h.#.k.w".into(), "h.#.k.w".into(), 2),
                ("model.h.#.q.w".into(), "h.#.q.w".into(), 2)
            ]
        );
    }

    #[test]
    fn other_shapes_other_layers_or_other_words_are_no_rename() {
        assert!(found(&[("a.w", 4)], &[("b.w", 5)]).is_empty());
        assert!(found(&[("a.0.w", 4)], &[("b.1.w", 4)]).is_empty());
        assert!(found(&[("a.b.c", 4)], &[("x.y.z", 4)]).is_empty());
        assert_eq!(found(&[("a.w", 4)], &[("b.w", 4)]).len(), 1);
        assert!(found(&[], &[("b.w", 4)]).is_empty());
    }
}
