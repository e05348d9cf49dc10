//! Goal: ranks and coordinates agree on every mesh, and bad meshes are refused by name.

use proptest::prelude::*;

use super::*;

#[test]
fn the_first_axis_is_outermost() {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)]).unwrap();
    assert_eq!(mesh.size(), 8);
    assert_eq!(mesh.rank_at(&[1, 2]), Some(6));
    assert_eq!(mesh.coords_of(6), Some(vec![1, 2]));
    assert_eq!(mesh.coords_of(8), None);
    assert_eq!(mesh.rank_at(&[2, 0]), None);
    assert_eq!(mesh.rank_at(&[1]), None);
    assert_eq!(mesh.max_rank(), 7);
}

#[test]
fn a_mesh_without_axes_has_one_rank() {
    let mesh = Mesh::single();
    assert_eq!((mesh.size(), mesh.rank_at(&[])), (1, Some(0)));
    assert_eq!(mesh.to_string(), "single");
    let seventh: Mesh = "single on [7]".parse().unwrap();
    assert_eq!(seventh.to_string(), "single on 7..8");
    assert_eq!(seventh.max_rank(), 7);
}

#[test]
fn sub_meshes_and_permutations_keep_their_ranks() {
    for text in [
        "dp=2,tp=2 on 4..8",
        "tp=3 on [0,2,5]",
        "a=2,b=2 on [3,1,2,0]",
    ] {
        let mesh: Mesh = text.parse().unwrap();
        assert_eq!(mesh.to_string(), text);
    }
    let mesh: Mesh = "tp=3 on [5,0,2]".parse().unwrap();
    assert_eq!(mesh.rank_at(&[0]), Some(5));
    assert_eq!(mesh.coords_of(2), Some(vec![2]));
    assert_eq!(mesh.max_rank(), 5);
}

#[test]
fn a_list_of_consecutive_ranks_is_a_range() {
    let listed = Mesh::with_ranks([("tp", 3)], vec![4, 5, 6]).unwrap();
    assert_eq!(listed.to_string(), "tp=3 on 4..7");
    assert_eq!("tp=2 on 0..2".parse(), Mesh::new([("tp", 2)]));
}

#[test]
fn an_unknown_axis_is_answered_with_the_axes() {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)]).unwrap();
    let error = mesh.axis("pp").unwrap_err();
    assert_eq!(error.to_string(), "the mesh has no axis `pp`");
    assert_eq!(error.hint().unwrap(), "its axes are `dp`, `tp`");
}

#[test]
fn bad_meshes_are_refused() {
    let long = format!("{}=2", "x".repeat(MAX_AXIS_NAME_BYTES + 1));
    let many: Vec<String> = (0..17).map(|axis| format!("a{axis}=1")).collect();
    for (text, message) in [
        ("", "is not a mesh"),
        ("tp", "is not a mesh"),
        ("tp=x", "is not a mesh"),
        ("tp=2 on 1", "is not a mesh"),
        ("tp=2 on [1,x]", "is not a mesh"),
        ("2p=2", "`2p` is not a name"),
        ("é=2", "`é` is not a name"),
        ("=2", "`` is not a name"),
        (&long, "is not a name"),
        ("tp=2,tp=2", "two axes named `tp`"),
        ("tp=0", "`tp` has size 0"),
        ("tp=3 on 0..2", "span 3 ranks, but 2"),
        ("tp=2 on [1,1]", "rank 1 stands twice"),
        ("tp=1 on 99999999999..99999999999999", "ranks are more than"),
        ("tp=1 on [18446744073709551615]", "ranks are more than"),
        ("a=4294967296,b=4294967296", "ranks are more than"),
        (
            &many.join(","),
            "17 mesh axes are more than the limit of 16",
        ),
    ] {
        let error = text.parse::<Mesh>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn ranks_and_coordinates_agree(mesh in crate::testing::meshes()) {
        prop_assert_eq!(&mesh.to_string().parse::<Mesh>().unwrap(), &mesh);
        let ranks: Vec<usize> = mesh.ranks().collect();
        prop_assert_eq!(ranks.len(), mesh.size());
        prop_assert_eq!(ranks.iter().max().copied(), Some(mesh.max_rank()));
        for (position, rank) in ranks.into_iter().enumerate() {
            prop_assert_eq!(mesh.position(rank), Some(position));
            let coords = mesh.coords_of(rank).unwrap();
            prop_assert_eq!(mesh.rank_at(&coords), Some(rank));
        }
        prop_assert!(!mesh.contains(mesh.max_rank() + 1));
    }
}
