//! Every tensor, as a tree over the parts of its name.

use super::Tensor;
use crate::names::Part;
use crate::table::{Paint, Style, Table, cell};
use crate::units::{plural, size};
use std::collections::BTreeMap;

/// A part of a name: the tensor that ends here, and the parts that follow.
#[derive(Debug, Default)]
struct Node<'a> {
    tensor: Option<&'a Tensor>,
    /// Tensors here and below, and their bytes.
    count: usize,
    len_bytes: u64,
    children: BTreeMap<Part<'a>, Node<'a>>,
}

/// The tree as lines, each ended.
pub(super) fn text(tensors: &[Tensor], paint: Paint) -> String {
    let mut root = Node::default();
    for tensor in tensors {
        let parts = tensor.name.split('.').map(Part::new);
        let node = parts.fold(&mut root, |node, part| {
            let child = node.children.entry(part).or_default();
            child.count += 1;
            child.len_bytes += tensor.len_bytes;
            child
        });
        node.tensor = Some(tensor);
    }
    let mut table = Table::new(&["", "", " ", ""]);
    for (part, child) in &root.children {
        child.add_to(&mut table, part.text().to_string(), "", "");
    }
    table.render(paint)
}

impl Node<'_> {
    /// Adds this node and all below it. A chain without branches takes one line.
    fn add_to(&self, table: &mut Table, mut label: String, first: &str, rest: &str) {
        let mut node = self;
        while let (None, 1) = (node.tensor, node.children.len())
            && let Some((part, child)) = node.children.first_key_value()
        {
            label = format!("{label}.{}", part.text());
            node = child;
        }
        let mut row = vec![format!("{first}{label}").into()];
        if let Some(tensor) = node.tensor {
            row.push(format!("{}{:?}", tensor.dtype, tensor.shape).into());
            row.push(size(tensor.len_bytes).into());
            row.push(cell(
                Style::Dim,
                tensor.sharding.clone().unwrap_or_default(),
            ));
        } else {
            row.push(cell(Style::Dim, plural(node.count, "tensor")));
            row.push(cell(Style::Dim, size(node.len_bytes)));
        }
        table.row(row);
        for (index, (part, child)) in node.children.iter().enumerate() {
            let (branch, below) = match index + 1 == node.children.len() {
                true => ("└─ ", "   "),
                false => ("├─ ", "│  "),
            };
            let (first, rest) = (format!("{rest}{branch}"), format!("{rest}{below}"));
            child.add_to(table, part.text().to_string(), &first, &rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str) -> Tensor {
        Tensor {
            name: name.to_string(),
            dtype: "u8".into(),
            shape: vec![1],
            sharding: None,
            mesh: None,
            len_bytes: 1,
        }
    }

    #[test]
    fn numbers_are_in_order_chains_are_folded_and_a_name_may_be_a_prefix() {
        let names = ["h.10.w", "h.2.w", "h.2", "a.b.c", "", "x..y"];
        let tensors: Vec<Tensor> = names.iter().map(|name| tensor(name)).collect();
        insta::assert_snapshot!(text(&tensors, Paint(false)), @"
                 u8[1]      1 B
        a.b.c    u8[1]      1 B
        h        3 tensors  3 B
        ├─ 2     u8[1]      1 B
        │  └─ w  u8[1]      1 B
        └─ 10.w  u8[1]      1 B
        x..y     u8[1]      1 B
        ");
    }
}
