//! How a tensor spec prints and parses: `f32[12288@tp/3, 1024 | flat(dp) | at(pp=1)]`.

use std::fmt;

use super::{Distribution, TensorSpec};
use crate::{
    DimSharding, Error, Mesh, Sharding,
    sharding::{format_dim, parse_dim},
};

impl TensorSpec {
    /// Reads a tensor spec over `mesh`: `bf16[4096@tp, 1024]`, a scalar is `f32[]`.
    ///
    /// After `@` stand the axes that split the dim, after the dims the suffixes of
    /// [`Sharding::parse`]. Listed pieces stand as `f32[8 | listed(0={0:4}, 3={4:2; 6:2})]`.
    ///
    /// # Errors
    /// If the text does not follow the grammar, or the tensor is refused by [`TensorSpec::new`].
    pub fn parse(mesh: &Mesh, text: &str) -> Result<TensorSpec, Error> {
        let inner = text
            .trim()
            .strip_suffix(']')
            .and_then(|text| text.split_once('['));
        let (dtype, inner) = inner.ok_or_else(|| syntax(text))?;
        let dtype = dtype.trim().parse()?;
        let mut sections = inner.split('|').peekable();
        let mut shape = Vec::new();
        let mut dims = Vec::new();
        let named = sections.next().unwrap_or_default().trim();
        for dim in named.split(',').filter(|_| !named.is_empty()) {
            let (len, split) = match dim.split_once('@') {
                None => (dim, DimSharding::WHOLE),
                Some((len, split)) => (len, parse_dim(mesh, split.trim())?),
            };
            shape.push(len.trim().parse().map_err(|_| syntax(text))?);
            dims.push(split);
        }
        let listed = sections.next_if(|section| section.trim().starts_with("listed("));
        if let Some(listed) = listed {
            let whole = dims.iter().all(|dim| dim.axes.is_empty());
            if !whole || sections.next().is_some() {
                return Err(syntax(text));
            }
            return TensorSpec::new(dtype, shape, listed.parse::<crate::Listed>()?);
        }
        let sharding = Sharding::new(mesh, dims)?.with_suffixes(sections)?;
        TensorSpec::new(dtype, shape, sharding)
    }
}

fn syntax(text: &str) -> Error {
    Error::Syntax {
        what: "tensor spec",
        text: text.to_owned(),
        expected: "a dtype, then each dim's size and axes, such as `bf16[4096@tp, 1024]`",
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (dim, len) in self.shape.iter().enumerate() {
            let separator = if dim == 0 { "" } else { ", " };
            write!(f, "{separator}{len}")?;
            if let Some(sharding) = self.sharding()
                && !sharding.dims()[dim].axes.is_empty()
            {
                let split = format_dim(sharding.mesh(), &sharding.dims()[dim]);
                write!(f, "@{split}")?;
            }
        }
        match &self.distribution {
            Distribution::Mesh(sharding) => sharding.fmt_suffixes(f)?,
            Distribution::Listed(listed) => write!(f, " | {listed}")?,
        }
        f.write_str("]")
    }
}
