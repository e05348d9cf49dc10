//! How a sharding prints and parses: `tp, - | flat(dp) | at(pp=1) | sum(cp)`.

use std::fmt;

use cairn_tensor::ReduceOp;

use super::{DimSharding, Sharding};
use crate::{Error, Mesh};

impl Sharding {
    /// Reads a sharding over `mesh`: for each dim `-` or the axes that split it, then suffixes.
    ///
    /// ```text
    /// sharding = [dim {"," dim}] {"|" suffix}
    /// dim      = "-" | axis {"+" axis} ["/" groups]
    /// suffix   = "flat(" axis {"+" axis} ")" | "at(" axis "=" index ")" | operation "(" axis {"+" axis} ")"
    /// ```
    ///
    /// # Errors
    /// If the text does not follow the grammar, or asks for something the mesh does not have.
    pub fn parse(mesh: &Mesh, text: &str) -> Result<Sharding, Error> {
        let mut sections = text.split('|');
        let dims = match sections.next().unwrap_or_default().trim() {
            "" => Vec::new(),
            dims => dims
                .split(',')
                .map(|dim| parse_dim(mesh, dim.trim()))
                .collect::<Result<_, _>>()?,
        };
        Sharding::new(mesh, dims)?.with_suffixes(sections)
    }

    /// Adds the suffixes that stand after the dims.
    pub(crate) fn with_suffixes<'a>(
        mut self,
        suffixes: impl Iterator<Item = &'a str>,
    ) -> Result<Sharding, Error> {
        for suffix in suffixes.map(str::trim) {
            let parts = suffix
                .strip_suffix(')')
                .and_then(|suffix| suffix.split_once('('));
            let (name, arguments) = parts.ok_or_else(|| syntax(suffix))?;
            self = match name.trim() {
                "flat" if self.flat.is_empty() => {
                    let axes = parse_axes(&self.mesh, arguments)?;
                    self.with_flat(axes)?
                }
                "flat" => return Err(syntax(suffix)),
                "at" => {
                    let pin = parse_pin(&self.mesh, arguments, suffix)?;
                    let pins = [&self.pins[..], &[pin]].concat();
                    self.with_pins(pins)?
                }
                name => {
                    let op: ReduceOp = name.parse().map_err(|_| syntax(suffix))?;
                    let axes = parse_axes(&self.mesh, arguments)?;
                    let mut partial = self.partial.clone();
                    partial.extend(axes.into_iter().map(|axis| (axis, op)));
                    self.with_partial(partial)?
                }
            };
        }
        Ok(self)
    }

    /// Prints `" | "` and each suffix.
    pub(crate) fn fmt_suffixes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |axis: usize| &self.mesh.axes()[axis].name;
        if !self.flat.is_empty() {
            write!(f, " | flat({})", join_axes(&self.mesh, &self.flat))?;
        }
        for &(axis, index) in &self.pins {
            write!(f, " | at({}={index})", name(axis))?;
        }
        for &(axis, op) in &self.partial {
            write!(f, " | {op}({})", name(axis))?;
        }
        Ok(())
    }
}

/// Reads `-`, `tp`, `tp+dp` or `tp/3`.
pub(crate) fn parse_dim(mesh: &Mesh, text: &str) -> Result<DimSharding, Error> {
    if text == "-" {
        return Ok(DimSharding::WHOLE);
    }
    let (axes, groups) = match text.split_once('/') {
        None => (text, 1),
        Some((axes, groups)) => {
            let groups = groups.trim().parse().map_err(|_| syntax(text))?;
            (axes, groups)
        }
    };
    let axes = parse_axes(mesh, axes)?;
    Ok(DimSharding { axes, groups })
}

/// Prints `tp`, `tp+dp` or `tp/3`; the dim is split.
pub(crate) fn format_dim(mesh: &Mesh, dim: &DimSharding) -> String {
    let axes = join_axes(mesh, &dim.axes);
    match dim.groups {
        1 => axes,
        groups => format!("{axes}/{groups}"),
    }
}

fn parse_axes(mesh: &Mesh, text: &str) -> Result<Vec<usize>, Error> {
    let axis = |name: &str| match name.trim() {
        "" => Err(syntax(text)),
        name => mesh.axis(name),
    };
    text.split('+').map(axis).collect()
}

fn join_axes(mesh: &Mesh, axes: &[usize]) -> String {
    let names: Vec<&str> = axes
        .iter()
        .map(|&axis| mesh.axes()[axis].name.as_str())
        .collect();
    names.join("+")
}

fn parse_pin(mesh: &Mesh, text: &str, suffix: &str) -> Result<(usize, usize), Error> {
    let (axis, index) = text.split_once('=').ok_or_else(|| syntax(suffix))?;
    let index = index.trim().parse().map_err(|_| syntax(suffix))?;
    Ok((mesh.axis(axis.trim())?, index))
}

fn syntax(text: &str) -> Error {
    Error::Syntax {
        what: "part of a sharding",
        text: text.to_owned(),
        expected: "`-`, `axis+axis` or `axis/groups` for each dim, then `| flat(axis)`, \
            `| at(axis=index)` or a reduction such as `| sum(axis)`",
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self
            .dims
            .iter()
            .map(|dim| match dim.axes.is_empty() {
                true => "-".to_owned(),
                false => format_dim(&self.mesh, dim),
            })
            .collect();
        f.write_str(&dims.join(", "))?;
        self.fmt_suffixes(f)
    }
}
