//! Running a plan in memory, for ranks of one process.

use cairn_sharding::TensorSpec;
use cairn_tensor::{DType, Overflow, Runs, Strided, cast, finish_average, reduce_into};

use crate::{Action, Error, Fill, Identity, Plan, Reduction, Transfer};

/// Runs a plan: reads each rank's source buffer, and fills each rank's target buffer, resizing it.
///
/// Buffers stand by rank; ranks that hold nothing may have any source buffer, and get an empty target.
///
/// # Errors
/// If a buffer is missing or has the wrong length, or a box of a type smaller than a byte starts inside
/// a byte. Target buffers are then in an undefined state.
pub fn execute(
    plan: &Plan,
    sources: &[impl AsRef<[u8]>],
    targets: &mut [Vec<u8>],
) -> Result<(), Error> {
    check_sources(&plan.source, sources)?;
    prepare_targets(&plan.target, targets)?;
    let dtype = plan.source.dtype();
    for action in plan.steps.iter().flat_map(|step| &step.actions) {
        match action {
            Action::Copy(transfer) => copy(dtype, transfer, sources, targets)?,
            Action::Reduce(reduction) => reduce(dtype, reduction, sources, targets)?,
            Action::Share(transfer) => share(dtype, transfer, targets)?,
            Action::Fill(fill) => write_identity(dtype, fill, targets)?,
        }
    }
    Ok(())
}

fn check_sources(spec: &TensorSpec, sources: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    for rank in spec.ranks() {
        let actual = source(sources, rank)?.len();
        let expected = local_bytes(spec, rank)?;
        if actual != expected {
            return Err(Error::BufferLength {
                rank,
                expected,
                actual,
            });
        }
    }
    Ok(())
}

fn prepare_targets(spec: &TensorSpec, targets: &mut [Vec<u8>]) -> Result<(), Error> {
    targets.iter_mut().for_each(Vec::clear);
    for rank in spec.ranks() {
        target(targets, rank)?.resize(local_bytes(spec, rank)?, 0);
    }
    Ok(())
}

fn source(sources: &[impl AsRef<[u8]>], rank: usize) -> Result<&[u8], Error> {
    let count = sources.len();
    let found = sources.get(rank).map(AsRef::as_ref);
    found.ok_or(Error::NoBuffer {
        side: "source",
        rank,
        count,
    })
}

fn target(targets: &mut [Vec<u8>], rank: usize) -> Result<&mut Vec<u8>, Error> {
    let count = targets.len();
    let found = targets.get_mut(rank);
    found.ok_or(Error::NoBuffer {
        side: "target",
        rank,
        count,
    })
}

fn local_bytes(spec: &TensorSpec, rank: usize) -> Result<usize, Error> {
    let (dtype, elements) = (spec.dtype(), spec.local_element_count(rank));
    dtype
        .len_bytes(elements)
        .ok_or(Error::PartialByte { dtype, elements })
}

fn copy(
    dtype: DType,
    transfer: &Transfer,
    sources: &[impl AsRef<[u8]>],
    targets: &mut [Vec<u8>],
) -> Result<(), Error> {
    let runs = Runs::between(dtype, &transfer.source_box, &transfer.target_box)?;
    let from = source(sources, transfer.source)?;
    for &rank in &transfer.targets {
        runs.copy(from, target(targets, rank)?)?;
    }
    Ok(())
}

fn share(dtype: DType, transfer: &Transfer, targets: &mut [Vec<u8>]) -> Result<(), Error> {
    let runs = Runs::between(dtype, &transfer.source_box, &transfer.target_box)?;
    // The source is a target buffer, too: taken out while others are written.
    let from = std::mem::take(target(targets, transfer.source)?);
    for &rank in &transfer.targets {
        runs.copy(&from, target(targets, rank)?)?;
    }
    targets[transfer.source] = from;
    Ok(())
}

fn reduce(
    dtype: DType,
    reduction: &Reduction,
    sources: &[impl AsRef<[u8]>],
    targets: &mut [Vec<u8>],
) -> Result<(), Error> {
    let packed = Strided::contiguous(&reduction.region.extent);
    let unpack = Runs::between(dtype, &reduction.source_box, &packed)?;
    let mut value = vec![0; reduction.len_bytes];
    let mut term = vec![0; reduction.len_bytes];
    for (index, &rank) in reduction.sources.iter().enumerate() {
        if index == 0 {
            unpack.copy(source(sources, rank)?, &mut value)?;
            continue;
        }
        unpack.copy(source(sources, rank)?, &mut term)?;
        reduce_into(reduction.op, dtype, &mut value, &term)?;
    }
    if reduction.divisor > 1 {
        finish_average(dtype, &mut value, reduction.divisor)?;
    }
    let pack = Runs::between(dtype, &packed, &reduction.target_box)?;
    Ok(pack.copy(&value, target(targets, reduction.owner)?)?)
}

fn write_identity(dtype: DType, fill: &Fill, targets: &mut [Vec<u8>]) -> Result<(), Error> {
    let elements = fill.region.element_count();
    let len_bytes = dtype
        .len_bytes(elements)
        .ok_or(Error::PartialByte { dtype, elements })?;
    let mut value = vec![0; len_bytes];
    if fill.value == Identity::One {
        cast(
            DType::U8,
            dtype,
            &vec![1; elements],
            &mut value,
            Overflow::Native,
        )?;
    }
    let packed = Strided::contiguous(&fill.region.extent);
    let runs = Runs::between(dtype, &packed, &fill.target_box)?;
    Ok(runs.copy(&value, target(targets, fill.target)?)?)
}
