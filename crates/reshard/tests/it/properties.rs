//! Goal: any layout reaches any other, with every element written once and no byte too many.
//! Method: random pairs of layouts on random meshes, compared with gathering and slicing lists.

use cairn_reshard::{Error, Options, Plan, execute, plan};
use cairn_sharding::{Distribution, Listed, Mesh, Sharding, TensorSpec, testing};
use cairn_tensor::{DType, ReduceOp};
use proptest::prelude::*;

use crate::oracle::{gather, held, least_bytes, scatter, writes};

fn options() -> impl Strategy<Value = Options> {
    let ranks_per_node = prop::option::of(1usize..5);
    let min_message_bytes = prop::sample::select(vec![1usize, 16, 1 << 20]);
    (ranks_per_node, min_message_bytes).prop_map(|(ranks_per_node, min_message_bytes)| Options {
        ranks_per_node,
        min_message_bytes,
    })
}

fn spec(shape: &[usize], distribution: impl Into<Distribution>) -> TensorSpec {
    TensorSpec::new(DType::I32, shape.to_vec(), distribution).unwrap()
}

/// Two layouts of one tensor.
fn pairs() -> impl Strategy<Value = (TensorSpec, TensorSpec)> {
    testing::shapes().prop_flat_map(|shape| {
        let layouts = (
            testing::distributions(shape.clone()),
            testing::distributions(shape.clone()),
        );
        layouts.prop_map(move |(source, target)| (spec(&shape, source), spec(&shape, target)))
    })
}

/// Two layouts of one tensor, both perhaps partial, half of them on one mesh.
fn partial_pairs() -> impl Strategy<Value = (TensorSpec, TensorSpec)> {
    let meshes = (testing::meshes(), testing::meshes(), any::<bool>());
    (meshes, testing::shapes()).prop_flat_map(|((first, second, same), shape)| {
        let second = if same { first.clone() } else { second };
        let source = testing::partial_shardings(first, shape.len());
        let target = partial_or_not(second, shape.len());
        (source, target)
            .prop_map(move |(source, target)| (spec(&shape, source), spec(&shape, target)))
    })
}

fn partial_or_not(mesh: Mesh, ndim: usize) -> impl Strategy<Value = Sharding> {
    prop_oneof![
        testing::shardings(mesh.clone(), ndim),
        testing::partial_shardings(mesh, ndim)
    ]
}

/// A number no other element has, divisible by every average, and different in every term.
fn value(term: &[usize], number: usize) -> i32 {
    let term = term.iter().fold(1, |term, coord| term * 5 + coord);
    i32::try_from((number * 131 + term * term % 89 + 1) * 108).unwrap()
}

/// A small factor, so that products of many do not overflow.
fn factor(term: &[usize], number: usize) -> i32 {
    let term: usize = term.iter().sum();
    [1, -1, 2][(number + term) % 3]
}

fn multiplies(spec: &TensorSpec) -> bool {
    let partial = spec
        .sharding()
        .map_or(&[][..], |sharding| sharding.partial());
    partial.iter().any(|&(_, op)| op == ReduceOp::Prod)
}

fn run(plan: &Plan, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut targets = vec![vec![7; 3]; plan.target.max_rank() + 1];
    execute(plan, sources, &mut targets).unwrap();
    targets
}

fn check_written_once(plan: &Plan) -> Result<(), TestCaseError> {
    for (rank, writes) in writes(plan).iter().enumerate() {
        prop_assert!(
            writes.iter().all(|&count| count == 1),
            "rank {} writes {:?}",
            rank,
            writes
        );
    }
    Ok(())
}

/// Steps partition the ranks, and their costs add up.
fn check_steps(plan: &Plan) -> Result<(), TestCaseError> {
    let mut ranks: Vec<usize> = plan
        .steps
        .iter()
        .flat_map(|step| step.ranks.clone())
        .collect();
    prop_assert!(plan.steps.iter().all(|step| step.ranks.is_sorted()));
    let count = ranks.len();
    ranks.sort_unstable();
    ranks.dedup();
    prop_assert_eq!(ranks.len(), count, "a rank is in two steps");
    let moved: usize = plan.steps.iter().map(|step| step.cost().moved_bytes).sum();
    prop_assert_eq!(moved, plan.cost().moved_bytes);
    for action in plan.steps.iter().flat_map(|step| &step.actions) {
        for (source, target, len_bytes) in action.messages() {
            prop_assert!(source != target && len_bytes > 0);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40_000))]

    #[test]
    fn any_layout_reaches_any_other((source, target) in pairs(), options in options()) {
        let forth = plan(&source, &target, &options).unwrap();
        check_written_once(&forth)?;
        check_steps(&forth)?;
        prop_assert_eq!(forth.cost().moved_bytes, least_bytes(&source, &target));
        let sources = scatter(&source, value);
        let targets = run(&forth, &sources);
        prop_assert_eq!(&targets, &scatter(&target, value));
        let back = plan(&target, &source, &options).unwrap();
        prop_assert_eq!(run(&back, &targets), sources);
    }

    #[test]
    fn partial_values_are_combined_exactly_once((source, target) in partial_pairs(), options in options()) {
        let plan = plan(&source, &target, &options).unwrap();
        check_written_once(&plan)?;
        check_steps(&plan)?;
        prop_assert_eq!(plan.cost().moved_bytes, least_bytes(&source, &target));
        let value = if multiplies(&source) { factor } else { value };
        let sources = scatter(&source, value);
        let targets = run(&plan, &sources);
        prop_assert_eq!(gather(&target, &targets), gather(&source, &sources));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn the_same_layouts_give_the_same_plan((source, target) in partial_pairs(), options in options()) {
        let first = plan(&source, &target, &options).unwrap();
        prop_assert_eq!(&first, &plan(&source, &target, &options).unwrap());
        prop_assert!(first.to_string().lines().count() == first.steps.len() + 2);
    }

    #[test]
    fn staying_moves_nothing((source, _) in partial_pairs(), options in options()) {
        let plan = plan(&source, &source, &options).unwrap();
        prop_assert_eq!(plan.cost().moved_bytes, 0);
        let sources = scatter(&source, value);
        prop_assert_eq!(run(&plan, &sources), sources);
    }

    #[test]
    fn missing_elements_are_named((source, target) in pairs(), lost in any::<prop::sample::Index>()) {
        let listed = source.ranks().into_iter().map(|rank| (rank, source.pieces(rank)));
        let mut listed: Vec<_> = listed.collect();
        if !listed.is_empty() {
            listed.remove(lost.index(listed.len()));
        }
        let source = spec(source.shape(), Listed::new(listed.into_iter().collect()));
        let has: Vec<usize> = source.ranks().into_iter().flat_map(|rank| held(&source, rank)).collect();
        let needs: Vec<usize> = target.ranks().into_iter().flat_map(|rank| held(&target, rank)).collect();
        match plan(&source, &target, &Options::default()) {
            Ok(_) => prop_assert!(needs.iter().all(|number| has.contains(number))),
            Err(Error::Uncovered { region, rank }) => {
                let missing = crate::oracle::numbers(source.shape(), &region);
                let needed = held(&target, rank);
                prop_assert!(!missing.is_empty());
                prop_assert!(missing.iter().all(|number| needed.contains(number) && !has.contains(number)));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
