//! Fills memory with elements of a merged tensor.

use crate::Error;
use crate::methods::{Blend, Method};
use crate::number::{Arithmetic, Real, is_float, with_arithmetic};
use crate::operands::{Block, Operands};
use crate::passes::BLOCK;
use crate::plan::TensorPlan;
use cairn_tensor::DType;
use std::ops::Range;

/// A tensor of the result of which all is known that needs a look at whole tensors.
pub(crate) trait Fill: Send + Sync {
    /// Fills `bytes` with some elements.
    fn fill(&self, elements: Range<usize>, bytes: &mut [u8]) -> Result<(), Error>;
}

/// Makes a tensor ready to be filled.
pub(crate) fn prepare(plan: &TensorPlan, operands: Operands) -> Result<Box<dyn Fill>, Error> {
    let written = plan.tensor.dtype;
    let is_same = |dtype: DType| dtype == written && dtype == plan.arithmetic;
    let stays = operands
        .inputs
        .iter()
        .all(|input| input.is_plain() && is_same(input.stored.dtype));
    let copies = plan.method == Method::Pass { scale: None };
    if copies && (stays || !is_float(plan.arithmetic)) {
        return Ok(Box::new(Copied { operands }));
    }
    with_arithmetic!(plan.arithmetic, worked(&plan.method, operands, written))
}

fn worked<A: Arithmetic>(
    method: &Method,
    operands: Operands,
    written: DType,
) -> Result<Box<dyn Fill>, Error> {
    let blend = method.prepare::<A>(&operands)?;
    Ok(Box::new(Worked::<A> {
        operands,
        blend,
        written,
    }))
}

/// A tensor that is worked out.
struct Worked<A: Arithmetic> {
    operands: Operands,
    blend: Box<dyn Blend<A>>,
    written: DType,
}

impl<A: Arithmetic> Fill for Worked<A> {
    fn fill(&self, elements: Range<usize>, bytes: &mut [u8]) -> Result<(), Error> {
        let size = self.written.bits() / 8;
        let mut block = Block::<A>::new();
        let mut out = vec![A::Real::default(); BLOCK.min(elements.len())];
        let mut first = elements.start;
        for bytes in bytes.chunks_mut(BLOCK * size) {
            let range = first..(first + BLOCK).min(elements.end);
            let out = &mut out[..range.len()];
            let inputs = block.load(&self.operands, range.clone())?;
            self.blend.blend(first, inputs, out);
            A::Real::encode(out, self.written, bytes);
            first = range.end;
        }
        Ok(())
    }
}

/// A tensor whose bytes are those of the inputs, which have to agree.
struct Copied {
    operands: Operands,
}

impl Fill for Copied {
    fn fill(&self, elements: Range<usize>, bytes: &mut [u8]) -> Result<(), Error> {
        let mut buffer = Vec::new();
        for (index, input) in self.operands.inputs.iter().enumerate() {
            input.read_bytes(elements.clone(), &mut buffer)?;
            if index == 0 {
                bytes.copy_from_slice(&buffer);
            } else if bytes != buffer {
                return Err(Error::Tensor {
                    name: self.operands.name.clone(),
                    reason: "its values are whole numbers and differ between the models".into(),
                });
            }
        }
        Ok(())
    }
}
