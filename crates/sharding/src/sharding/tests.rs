//! Goal: the text says what it means, and everything else is refused with a way out.

use crate::{Distribution, Error, Listed, Mesh, Sharding, TensorSpec};

fn mesh() -> Mesh {
    Mesh::new([("pp", 2), ("dp", 2), ("tp", 4)]).unwrap()
}

#[test]
fn the_text_is_canonical() {
    for (text, printed) in [
        ("tp, -", "tp, -"),
        ("  tp+dp/3 ,-", "tp+dp/3, -"),
        ("tp/1", "tp"),
        ("", ""),
        ("|flat(dp)", " | flat(dp)"),
        (
            "- | sum(dp+tp) | at(pp=1)",
            "- | at(pp=1) | sum(dp) | sum(tp)",
        ),
        ("- | sum(tp) | avg(dp)", "- | avg(dp) | sum(tp)"),
        ("tp | at(pp=1) | flat(dp)", "tp | flat(dp) | at(pp=1)"),
    ] {
        let sharding = Sharding::parse(&mesh(), text).unwrap();
        assert_eq!(sharding.to_string(), printed);
        assert_eq!(Sharding::parse(&mesh(), printed).unwrap(), sharding);
    }
}

#[test]
fn bad_shardings_are_refused() {
    for (text, message) in [
        ("tp,", "is not a part of a sharding"),
        ("tp+", "is not a part of a sharding"),
        ("tp/", "is not a part of a sharding"),
        ("-/2", "no axis `-`"),
        ("- | ", "is not a part of a sharding"),
        ("- | flat", "is not a part of a sharding"),
        ("- | flat()", "is not a part of a sharding"),
        ("- | flat(dp) | flat(tp)", "is not a part of a sharding"),
        ("- | at(pp)", "is not a part of a sharding"),
        ("- | median(dp)", "is not a part of a sharding"),
        ("ep", "no axis `ep`"),
        ("- | at(ep=1)", "no axis `ep`"),
        ("tp, tp", "`tp` is used twice"),
        ("tp | flat(tp)", "`tp` is used twice"),
        ("tp | sum(tp)", "`tp` is used twice"),
        ("- | at(pp=0) | at(pp=1)", "`pp` is used twice"),
        (
            "- | at(pp=2)",
            "`pp=2` is outside the mesh: axis `pp` has size 2",
        ),
        ("tp/0", "dim 0 is interleaved in 0 groups"),
        (
            "tp/65, dp/65",
            "4225 interleaved groups are more than the limit of 4096",
        ),
        ("- | sum(dp) | max(tp)", "partial by both `sum` and `max`"),
    ] {
        let error = Sharding::parse(&mesh(), text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn hints_name_the_valid_choices() {
    let hint = |text| Sharding::parse(&mesh(), text).unwrap_err().hint().unwrap();
    assert_eq!(hint("ep"), "its axes are `pp`, `dp`, `tp`");
    assert_eq!(hint("- | at(pp=2)"), "valid coordinates are 0 to 1");
}

#[test]
fn a_spec_prints_as_it_reads() {
    for text in [
        "bf16[4096@tp, 1024]",
        "f32[12288@tp/3, 1024 | flat(dp) | at(pp=1)]",
        "f32[]",
        "f32[ | at(pp=1) | sum(dp)]",
        "i64[7@dp+tp, 0]",
        "f32[8, 2 | listed(0={0:4,0:2}, 3={4:2,0:2; 6:2,0:2#1:4})]",
        "f32[ | listed(2={})]",
        "f32[0 | listed()]",
    ] {
        let spec = TensorSpec::parse(&mesh(), text).unwrap();
        assert_eq!(spec.to_string(), text);
    }
}

#[test]
fn bad_specs_are_refused() {
    for (text, message) in [
        ("f32", "is not a tensor spec"),
        ("f32[4", "is not a tensor spec"),
        ("f32[4,]", "is not a tensor spec"),
        ("f32[-4]", "is not a tensor spec"),
        ("f33[4]", "f33"),
        ("f32[4@ep]", "no axis `ep`"),
        ("f32[4294967296, 4294967296]", "has no length in bytes"),
        ("f4[3]", "has no length in bytes"),
        ("bool[4 | sum(tp)]", "cannot reduce `bool` by `sum`"),
        ("f32[8@tp | listed(0={0:8})]", "is not a tensor spec"),
        (
            "f32[8 | listed(0={0:8}) | flat(tp)]",
            "is not a tensor spec",
        ),
        ("f32[8 | listed(0={0:8})x]", "is not a list of pieces"),
        ("f32[8 | listed(0={0:8}, )]", "is not a list of pieces"),
        (
            "f32[8 | listed(0={0:8} 1={0:8})]",
            "is not a list of pieces",
        ),
        ("f32[8 | listed(0={0:8}, 0={0:8})]", "rank 0 stands twice"),
        (
            "f32[8 | listed(1={4:5})]",
            "piece `4:5` of rank 1 is outside",
        ),
        (
            "f32[8 | listed(1={4:1,0:1})]",
            "piece `4:1,0:1` of rank 1 is outside",
        ),
        (
            "f32[8 | listed(1={0:3; 2:2})]",
            "pieces `0:3` and `2:2` of rank 1 overlap",
        ),
        (
            "f32[4,4 | listed(1={0:4,0:4#5:7; 1:1,2:1})]",
            "of rank 1 overlap",
        ),
        (
            "f32[8 | listed(16777216={0:3})]",
            "ranks are more than the limit",
        ),
    ] {
        let error = TensorSpec::parse(&mesh(), text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn more_dims_than_the_tensor_has_are_refused() {
    let sharding = Sharding::parse(&mesh(), "-, tp").unwrap();
    let error = TensorSpec::new(cairn_tensor::DType::F32, vec![8], sharding).unwrap_err();
    assert_eq!(error, Error::DimOutOfRange { dim: 1, ndim: 1 });
}

#[test]
fn an_empty_flat_range_written_backwards_holds_nothing() {
    let piece = crate::Piece {
        region: "0:4".parse().unwrap(),
        flat: Some(std::ops::Range { start: 3, end: 1 }),
    };
    assert_eq!((piece.element_count(), piece.boxes()), (0, vec![]));
    let listed = Listed::new([(0, vec![piece])].into());
    assert!(listed.by_rank().is_empty());
    let spec = TensorSpec::new(
        cairn_tensor::DType::F32,
        vec![4],
        Distribution::Listed(listed),
    )
    .unwrap();
    assert!(!spec.holds(0));
}

#[test]
fn a_sharded_scalar_is_held_by_the_first_part() {
    let spec = TensorSpec::parse(&mesh(), "f32[ | flat(tp)]").unwrap();
    let counts: Vec<usize> = (0..4).map(|rank| spec.local_element_count(rank)).collect();
    assert_eq!(counts, [1, 0, 0, 0]);
    assert_eq!(spec.pieces(0).len(), 1);
}

#[test]
fn interleaved_parts_that_touch_are_one_piece() {
    let mesh = Mesh::new([("one", 1), ("tp", 2)]).unwrap();
    for (text, pieces) in [("u8[6@one/3]", 1), ("u8[6@tp/3]", 3), ("u8[1@tp/3]", 1)] {
        let spec = TensorSpec::parse(&mesh, text).unwrap();
        assert_eq!(spec.pieces(0).len(), pieces, "{text}");
        assert_eq!(spec.local_boxes(0).len(), pieces, "{text}");
    }
}

#[test]
fn the_largest_tensors_are_cut_without_overflow() {
    for text in [
        "u8[18446744073709551615@tp+dp]",
        "u8[3, 6148914691236517205@tp/7]",
        "u8[3, 6148914691236517205 | flat(tp+dp)]",
        "u8[3, 6148914691236517205@tp/7 | flat(dp)]",
        "u8[0, 18446744073709551615@tp, 18446744073709551615 | flat(dp)]",
    ] {
        let spec = TensorSpec::parse(&mesh(), text).unwrap();
        let whole = crate::Region::whole(spec.shape());
        let leaders = (0..8).filter(|&rank| spec.replica(rank).unwrap().index == 0);
        let held: usize = leaders.map(|rank| spec.local_element_count(rank)).sum();
        assert_eq!(held, whole.element_count(), "{text}");
        for rank in 0..8 {
            let boxes = spec.local_boxes(rank);
            let held: usize = boxes.iter().map(|part| part.region.element_count()).sum();
            assert_eq!(held, spec.local_element_count(rank), "{text}");
            assert_eq!(spec.pieces(rank).is_empty(), held == 0);
        }
        assert_eq!(spec.cells_overlapping(&whole).is_empty(), whole.is_empty());
    }
}
