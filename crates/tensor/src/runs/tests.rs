//! Goal: a planned copy moves what an element-by-element copy moves, whole, in pieces and over
//! threads. Method: random boxes inside random buffers, their dims stored in any order.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::Bands;

/// A copy to plan, with buffers to do it in.
#[derive(Debug, Clone)]
struct Case {
    dtype: DType,
    source: Strided,
    target: Strided,
    source_bytes: Vec<u8>,
    target_len: usize,
}

impl Case {
    /// The copy done bit by bit.
    fn expected(&self) -> Vec<u8> {
        let mut target = vec![0; self.target_len];
        for (from, to) in elements(&self.source)
            .into_iter()
            .zip(elements(&self.target))
        {
            for bit in 0..self.dtype.bits() {
                let (from, to) = (from * self.dtype.bits() + bit, to * self.dtype.bits() + bit);
                target[to / 8] |= (self.source_bytes[from / 8] >> (from % 8) & 1) << (to % 8);
            }
        }
        target
    }

    /// Whether the dims of both boxes are stored in their order.
    fn is_row_major(&self) -> bool {
        let ordered = |strides: &[usize]| strides.is_sorted_by(|outer, inner| outer >= inner);
        ordered(&self.source.strides) && ordered(&self.target.strides)
    }

    /// The longest runs of this copy in bits, found by joining neighbours.
    ///
    /// Where dims cross, one run may happen to end where another begins. Such runs differ in
    /// length, and no plan of equal runs has them.
    fn longest_runs(&self) -> Vec<Run> {
        let len = self.dtype.bits();
        let mut pairs: Vec<_> = elements(&self.source)
            .into_iter()
            .zip(elements(&self.target))
            .collect();
        pairs.sort_by_key(|&(_, target)| target);
        let mut runs: Vec<Run> = Vec::new();
        for (source, target) in pairs
            .into_iter()
            .map(|(source, target)| (source * len, target * len))
        {
            match runs.last_mut() {
                Some(run) if (run.source + run.len, run.target + run.len) == (source, target) => {
                    run.len += len
                }
                _ => runs.push(Run {
                    source,
                    target,
                    len,
                }),
            }
        }
        runs
    }
}

/// Where every element of a box lies, in row-major order of the box.
fn elements(each: &Strided) -> Vec<usize> {
    let mut places = vec![each.offset];
    for (&dim, &stride) in each.shape.iter().zip(&each.strides) {
        places = places
            .iter()
            .flat_map(|place| (0..dim).map(move |index| place + index * stride))
            .collect();
    }
    places
}

/// A box of this shape with margins around it, in a buffer whose dims are stored in any order; and
/// the number of elements of that buffer, which fill whole bytes.
fn boxed(shape: Vec<usize>) -> impl Strategy<Value = (Strided, usize)> {
    let rank = shape.len();
    let margins =
        || proptest::collection::vec(prop_oneof![4 => Just(0_usize), 1 => 1..4_usize], rank);
    let order = Just((0..rank).collect::<Vec<_>>());
    let order = prop_oneof![2 => order.clone(), 1 => order.prop_shuffle()];
    (margins(), margins(), order).prop_map(move |(before, after, order)| {
        let stored: Vec<usize> = order
            .iter()
            .map(|&dim| before[dim] + shape[dim] + after[dim])
            .collect();
        let whole = Strided::contiguous(&stored);
        let pick = |values: &[usize]| order.iter().map(|&dim| values[dim]).collect::<Vec<_>>();
        let region = whole.region(&pick(&before), &pick(&shape)).unwrap();
        let mut strides = vec![0; rank];
        order
            .iter()
            .zip(&region.strides)
            .for_each(|(&dim, &stride)| strides[dim] = stride);
        let len = element_count(&stored).unwrap().next_multiple_of(4);
        (
            Strided {
                offset: region.offset,
                shape: shape.clone(),
                strides,
            },
            len,
        )
    })
}

fn case() -> impl Strategy<Value = Case> {
    let dim = prop_oneof![1 => Just(0_usize), 4 => Just(1), 12 => 2..6_usize, 4 => Just(8)];
    let shape = proptest::collection::vec(dim, 0..5);
    let dtype = prop_oneof![
        proptest::sample::select(&DType::ALL[..]),
        Just(DType::F4),
        Just(DType::F6E2M3)
    ];
    (dtype, shape).prop_flat_map(|(dtype, shape)| {
        (boxed(shape.clone()), boxed(shape), any::<u64>()).prop_map(
            move |(source, target, seed)| Case {
                dtype,
                source_bytes: noise(dtype.len_bytes(source.1).unwrap(), seed),
                target_len: dtype.len_bytes(target.1).unwrap(),
                source: source.0,
                target: target.0,
            },
        )
    })
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        })
        .collect()
}

/// Cuts `0..len` at the given fractions.
fn pieces(len: usize, cuts: &[f64]) -> Vec<Range<usize>> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction of a length is a length"
    )]
    let mut cuts: Vec<usize> = cuts
        .iter()
        .map(|cut| (cut * len as f64) as usize)
        .chain([0, len])
        .collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_copy_moves_what_an_element_by_element_copy_moves(case in case(), threads in 1..6_usize) {
        let longest = case.longest_runs();
        let whole = longest.iter().all(|run| (run.source | run.target | run.len).is_multiple_of(8));
        let runs = match Runs::between(case.dtype, &case.source, &case.target) {
            Ok(runs) => runs,
            Err(error) => {
                prop_assert_eq!(error, Error::InsideByte { dtype: case.dtype });
                prop_assert!(!whole || !case.is_row_major());
                return Ok(());
            }
        };
        prop_assert!(whole);
        prop_assert!(runs.run_count() == longest.len() || !case.is_row_major());
        prop_assert_eq!(runs.len_bytes() * 8, longest.iter().map(|run| run.len).sum::<usize>());

        let mut target = vec![0; case.target_len];
        runs.copy(&case.source_bytes, &mut target).unwrap();
        prop_assert_eq!(&target, &case.expected());

        prop_assert!(runs.target_is_nested());
        let mut target = vec![0; case.target_len];
        if runs.run_count() > 0 {
            runs.copy_over(threads, &case.source_bytes, &mut target);
        }
        prop_assert_eq!(&target, &case.expected());
    }

    #[test]
    fn the_runs_inside_the_pieces_of_a_source_are_the_copy_exactly_once(
        case in case(),
        cuts in proptest::collection::vec(0.0..1.0, 0..6),
        band_bytes in 1..40_usize,
    ) {
        let Ok(runs) = Runs::between(case.dtype, &case.source, &case.target) else { return Ok(()) };
        prop_assert_eq!(runs.iter().count(), runs.run_count());
        let mut written = vec![0; case.target_len];
        let mut target = vec![0; case.target_len];
        let bands = Bands::with_band_bytes(&mut target, band_bytes).streamed();
        for piece in pieces(case.source_bytes.len(), &cuts) {
            for run in runs.in_source(piece.clone()) {
                prop_assert!(run.len > 0);
                prop_assert!(piece.start <= run.source && run.source + run.len <= piece.end);
                written[run.target..][..run.len].iter_mut().for_each(|count| *count += 1);
            }
            let source = &case.source_bytes[piece.clone()];
            bands.scatter(source, piece.start, runs.in_source(piece)).unwrap();
        }
        prop_assert!(written.iter().all(|&count| count <= 1));
        prop_assert_eq!(written.iter().sum::<usize>(), runs.len_bytes());
        prop_assert_eq!(&target, &case.expected());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn filling_from_the_pieces_of_a_source_is_the_copy(
        case in case(),
        cuts in proptest::collection::vec(0.0..1.0, 0..6),
        aligned in any::<bool>(),
        band_bytes in 1..40_usize,
    ) {
        let Ok(runs) = Runs::between(case.dtype, &case.source, &case.target) else { return Ok(()) };
        let mut target = vec![0; case.target_len];
        let bands = Bands::with_band_bytes(&mut target, band_bytes);
        let len = case.source_bytes.len();
        let step = if aligned { runs.run_bytes.max(1) } else { 1 };
        let place = |at: usize| if at == len { at } else { at / step * step };
        for piece in pieces(len, &cuts) {
            let (start, end) = (place(piece.start), place(piece.end));
            bands.fill(&case.source_bytes[start..end], start, &runs).unwrap();
        }
        prop_assert_eq!(&target, &case.expected());
    }
}

#[test]
fn a_transpose_is_a_gather_for_each_row_of_the_target() {
    let source = Strided {
        offset: 3,
        shape: vec![4, 5],
        strides: vec![1, 6],
    };
    let runs = Runs::between(DType::Bf16, &source, &Strided::contiguous(&[4, 5])).unwrap();
    let gathers: Vec<Gather> = runs.gathers_in(12..40).unwrap().collect();
    // Rows of the source begin at 6, 18, 30 …: the range has a part of the first, all of the second, and a part of the third.
    let gather = |source, target, count| Gather {
        source,
        source_stride: 12,
        target,
        count,
        run_bytes: 2,
    };
    let expected = [
        gather(18, 2, 2),
        gather(20, 12, 2),
        gather(22, 22, 2),
        gather(12, 30, 3),
    ];
    assert_eq!(gathers, expected);
    assert!(runs.gathers_in(11..40).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn threads_fill_one_target_through_bands(case in case(), band_bytes in 1..40_usize) {
        let Ok(runs) = Runs::between(case.dtype, &case.source, &case.target) else { return Ok(()) };
        let pieces = pieces(case.source_bytes.len(), &[0.1, 0.2, 0.3, 0.5, 0.6, 0.9]);
        let next = AtomicUsize::new(0);
        let mut target = vec![0; case.target_len];
        let bands = Bands::with_band_bytes(&mut target, band_bytes);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let source = &case.source_bytes[piece.clone()];
                        bands.scatter(source, piece.start, runs.in_source(piece.clone())).unwrap();
                    }
                });
            }
        });
        prop_assert_eq!(&target, &case.expected());
    }
}

#[test]
fn a_scalar_is_one_run_and_an_empty_box_none() {
    let scalar = Strided::contiguous(&[]);
    let runs = Runs::between(DType::F32, &scalar, &scalar).unwrap();
    assert_eq!(
        (runs.run_count(), runs.run_bytes, runs.loops.len()),
        (1, 4, 0)
    );

    let empty = Strided::contiguous(&[usize::MAX, 0, usize::MAX]);
    let runs = Runs::between(DType::F4, &empty, &empty).unwrap();
    assert_eq!(
        (runs.run_count(), runs.len_bytes(), runs.iter().count()),
        (0, 0, 0)
    );
    runs.copy(&[], &mut []).unwrap();
}

#[test]
fn one_source_element_can_fill_a_whole_target() {
    let source = Strided {
        offset: 1,
        shape: vec![2, 3],
        strides: vec![0, 0],
    };
    let runs = Runs::between(DType::U16, &source, &Strided::contiguous(&[2, 3])).unwrap();
    let mut target = [0; 12];
    runs.copy(&[1, 2, 3, 4], &mut target).unwrap();
    assert_eq!(target, [3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4]);
    assert_eq!(runs.in_source(3..4).count(), 6);
    assert_eq!(runs.in_source(0..2).count(), 0);
}

#[test]
fn boxes_that_do_not_fit_each_other_are_refused() {
    let (wide, tall) = (Strided::contiguous(&[2, 3]), Strided::contiguous(&[3, 2]));
    let error = Runs::between(DType::F32, &wide, &tall).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot copy a box of shape [2, 3] into one of shape [3, 2]"
    );

    let ragged = Strided {
        offset: 0,
        shape: vec![2, 3],
        strides: vec![1],
    };
    assert_eq!(
        Runs::between(DType::F32, &ragged, &wide).unwrap_err(),
        Error::RankMismatch {
            dims: 2,
            strides: 1
        }
    );
}

#[test]
fn boxes_too_large_to_exist_are_refused() {
    for shape in [
        vec![usize::MAX],
        vec![usize::MAX, usize::MAX],
        vec![1 << 62, 2],
    ] {
        let huge = Strided::contiguous(&shape);
        assert_eq!(
            Runs::between(DType::F64, &huge, &huge).unwrap_err(),
            Error::TooLarge
        );
    }
    let repeated = Strided {
        offset: 0,
        shape: vec![1 << 40, 1 << 40],
        strides: vec![0, 0],
    };
    assert_eq!(
        Runs::between(DType::U8, &repeated, &repeated).unwrap_err(),
        Error::TooLarge
    );
    let strides = vec![1, 1 << 60];
    let sparse = Strided {
        offset: 0,
        shape: vec![2, 2],
        strides,
    };
    assert_eq!(
        Runs::between(DType::U8, &sparse, &sparse)
            .unwrap()
            .run_count(),
        2
    );
    let far = Strided {
        offset: usize::MAX - 2,
        shape: vec![2],
        strides: vec![1],
    };
    assert_eq!(
        Runs::between(DType::U8, &far, &far).unwrap_err(),
        Error::TooLarge
    );
}

#[test]
fn a_copy_outside_its_buffers_writes_nothing() {
    let whole = Strided::contiguous(&[2, 2]);
    let runs = Runs::between(DType::U8, &whole, &whole.region(&[0, 0], &[2, 2]).unwrap()).unwrap();
    let mut target = [7; 4];
    let error = runs.copy(&[1, 2, 3], &mut target).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the copy needs 4 bytes of the source buffer, which has 3"
    );
    assert!(runs.copy(&[1, 2, 3, 4], &mut target[..3]).is_err());
    assert_eq!(target, [7; 4]);
}

#[test]
fn impossible_runs_are_an_error_and_never_a_panic() {
    let huge = Loop {
        count: usize::MAX,
        source_stride: usize::MAX,
        target_stride: usize::MAX,
    };
    let runs = Runs {
        source_offset: 9,
        target_offset: 9,
        run_bytes: 3,
        loops: vec![huge; 3],
    };
    assert_eq!(runs.copy(&[0; 9], &mut [0; 9]), Err(Error::TooLarge));
    assert_eq!(runs.len_bytes(), usize::MAX);
    assert_eq!(
        runs.iter().last(),
        Some(Run {
            source: 9,
            target: 9,
            len: 3
        })
    );
    assert_eq!(
        runs.in_source(10..12).next(),
        Some(Run {
            source: 10,
            target: 10,
            len: 2
        })
    );
    let never = Loop { count: 0, ..huge };
    let runs = Runs {
        loops: vec![huge, never],
        ..runs
    };
    assert_eq!((runs.run_count(), runs.iter().next()), (0, None));
}

#[test]
fn seeking_does_not_visit_the_runs_before_the_range() {
    // 10¹² runs: a scan would not end.
    let outer = Loop {
        count: 1_000_000,
        source_stride: 64_000_000,
        target_stride: 8_000_000,
    };
    let inner = Loop {
        count: 1_000_000,
        source_stride: 64,
        target_stride: 8,
    };
    let runs = Runs {
        source_offset: 0,
        target_offset: 0,
        run_bytes: 8,
        loops: vec![outer, inner],
    };
    let start = 999_999 * 64_000_000 + 500 * 64;
    let found: Vec<Run> = runs.in_source(start + 4..start + 66).collect();
    let target = 999_999 * 8_000_000 + 500 * 8;
    assert_eq!(
        found,
        [
            Run {
                source: start + 4,
                target: target + 4,
                len: 4
            },
            Run {
                source: start + 64,
                target: target + 8,
                len: 2
            },
        ]
    );
}

#[test]
fn large_transposes_of_every_element_size_are_exact() {
    for dtype in [DType::U8, DType::Bf16, DType::F32, DType::F64] {
        for shape in [vec![130, 70], vec![3, 64, 129], vec![65, 2, 66]] {
            let mut source = Strided::contiguous(&shape);
            source.shape.rotate_left(1);
            source.strides.rotate_left(1);
            let target = Strided::contiguous(&source.shape);
            let len = dtype.len_bytes(element_count(&shape).unwrap()).unwrap();
            let case = Case {
                dtype,
                source,
                target,
                source_bytes: noise(len, 3),
                target_len: len,
            };
            let mut copied = vec![0; len];
            let runs = Runs::between(dtype, &case.source, &case.target).unwrap();
            runs.copy(&case.source_bytes, &mut copied).unwrap();
            assert_eq!(copied, case.expected());
        }
    }
}

#[test]
fn a_copy_over_the_threshold_is_the_same_copy() {
    let (rows, columns) = (3, PARALLEL_THRESHOLD / 2);
    let source = Strided {
        offset: 0,
        shape: vec![rows, columns],
        strides: vec![1, rows],
    };
    let runs = Runs::between(DType::U8, &source, &Strided::contiguous(&[rows, columns])).unwrap();
    let bytes = noise(rows * columns, 1);
    let mut target = vec![0; bytes.len()];
    runs.copy(&bytes, &mut target).unwrap();
    assert!(
        (0..bytes.len())
            .all(|index| target[index] == bytes[index % columns * rows + index / columns])
    );
}
