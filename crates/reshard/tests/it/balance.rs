//! Goal: work is shared by those who can do it.

use cairn_reshard::{Action, Options, Planner, plan};
use cairn_sharding::{Mesh, TensorSpec};

fn spec(mesh: &str, text: &str) -> TensorSpec {
    TensorSpec::parse(&mesh.parse::<Mesh>().unwrap(), text).unwrap()
}

#[test]
fn replicas_divide_what_one_rank_needs() {
    let source = spec("dp=4", "f32[1024, 1024]");
    let target = spec("single on [9]", "f32[1024, 1024]");
    let cost = plan(&source, &target, &Options::default()).unwrap().cost();
    assert_eq!((cost.messages, cost.max_sent_bytes), (4, 1 << 20));
}

#[test]
fn replicas_divide_what_more_ranks_than_they_are_need() {
    let source = spec("dp=2", "f32[1024, 1024]");
    let target = spec("dp=3 on 2..5", "f32[1024, 1024]");
    let cost = plan(&source, &target, &Options::default()).unwrap().cost();
    assert_eq!((cost.messages, cost.max_sent_bytes), (4, 6 << 20));
}

#[test]
fn small_tensors_are_not_cut_but_spread_over_replicas() {
    let source = spec("dp=4", "f32[256]");
    let target = spec("single on [9]", "f32[256]");
    let mut planner = Planner::new(Options::default());
    let senders: Vec<usize> = (0..8)
        .map(|_| {
            let plan = planner.plan(&source, &target).unwrap();
            assert_eq!(plan.cost().messages, 1);
            plan.steps[0].ranks[0]
        })
        .collect();
    assert_eq!(senders, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_rank_of_the_same_node_is_preferred() {
    // Nodes {0,1}, {2,3}, {4,5}: ranks 1 and 4 hold the tensor, 0 and 5 want it.
    let source = spec("dp=2 on [1,4]", "f32[256]");
    let target = spec("dp=2 on [5,0]", "f32[256]");
    let options = Options {
        ranks_per_node: Some(2),
        ..Options::default()
    };
    let plan = plan(&source, &target, &options).unwrap();
    let pairs: Vec<(usize, usize)> = plan
        .steps
        .iter()
        .flat_map(|step| &step.actions)
        .flat_map(Action::messages)
        .map(|(source, target, _)| (source, target))
        .collect();
    assert_eq!(pairs, [(1, 0), (4, 5)]);
}

#[test]
fn a_large_all_reduce_is_combined_by_all_ranks() {
    let source = spec("dp=4", "f32[1024, 1024 | sum(dp)]");
    let target = spec("dp=4", "f32[1024, 1024]");
    let plan = plan(&source, &target, &Options::default()).unwrap();
    let owners: Vec<usize> = plan.steps[0]
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Reduce(reduction) => Some(reduction.owner),
            _ => None,
        })
        .collect();
    assert_eq!(owners, [0, 1, 2, 3]);
    let cost = plan.cost();
    assert_eq!(
        (cost.max_sent_bytes, cost.max_received_bytes),
        (6 << 20, 6 << 20)
    );
}
