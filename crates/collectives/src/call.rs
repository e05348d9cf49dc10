//! What a rank calls, to be compared with what the others call.

use cairn_tensor::{DType, ReduceOp};
use std::fmt;

/// A call of a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) reduction: Option<(DType, ReduceOp)>,
    /// A length or a rank on which all must agree.
    pub(crate) number: usize,
}

impl Call {
    pub(crate) fn new(name: &'static str, number: usize) -> Self {
        Self {
            name,
            reduction: None,
            number,
        }
    }

    pub(crate) fn reducing(self, dtype: DType, op: ReduceOp) -> Self {
        Self {
            reduction: Some((dtype, op)),
            ..self
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}({}", self.name, self.number)?;
        if let Some((dtype, op)) = self.reduction {
            write!(f, ", {dtype} {}", op.name())?;
        }
        f.write_str(")")
    }
}
