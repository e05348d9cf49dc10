//! Launches read from made-up environments, one for each launcher, and environments that make no sense.

use super::*;
use std::collections::BTreeMap;

/// Reads variables written as `NAME=value` words.
fn read(text: &str) -> Result<Launch, Error> {
    let words = text.split_whitespace();
    let variables: BTreeMap<&str, &str> = words.map(|word| word.split_once('=').unwrap()).collect();
    Launch::from_lookup(&|name| variables.get(name).map(ToString::to_string))
}

fn summary(text: &str) -> String {
    let launch = read(text).unwrap();
    let optional = |number: Option<usize>| number.map_or("?".into(), |n| n.to_string());
    format!(
        "{} {}/{} local {}/{} {}",
        launch.launcher,
        launch.rank,
        launch.size,
        optional(launch.local_rank),
        optional(launch.local_size),
        launch.session.map_or("-".into(), |s| format!("`{s}`"))
    )
}

const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4";
const SLURM: &str = "SLURM_PROCID=17 SLURM_NTASKS=20 SLURM_LOCALID=1 SLURM_NODEID=2";

#[test]
fn every_launcher_is_understood() {
    assert_eq!(summary(""), "single 0/1 local 0/1 -");
    assert_eq!(
        summary("CAIRN_RANK=1 CAIRN_WORLD_SIZE=2 CAIRN_SESSION=mine"),
        "cairn 1/2 local ?/? `mine`"
    );
    assert_eq!(summary(TORCHRUN), "torchrun 5/8 local 1/4 -");
    assert_eq!(
        summary("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=prterun-a-7@1"),
        "openmpi 0/2 local ?/? `openmpi prterun-a-7@1`"
    );
    assert_eq!(
        summary("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=99"),
        "openmpi 0/2 local ?/? `openmpi 99`"
    );
    assert_eq!(
        summary("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1"),
        "pmi 1/2 local 0/1 -"
    );
    assert_eq!(
        summary("PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2"),
        "paddle 1/2 local ?/? -"
    );
}

#[test]
fn the_more_explicit_launcher_is_believed() {
    let both = format!("{SLURM} {TORCHRUN}");
    assert_eq!(summary(&both), "torchrun 5/8 local 1/4 -");
    let all = format!("{both} CAIRN_RANK=0 CAIRN_WORLD_SIZE=1");
    assert_eq!(summary(&all), "cairn 0/1 local ?/? -");
    let named = format!("{TORCHRUN} TORCHELASTIC_RUN_ID=a CAIRN_SESSION=mine");
    assert_eq!(summary(&named), "torchrun 5/8 local 1/4 `mine`");
}

#[test]
fn a_restart_is_another_session() {
    let run = |rest: &str| read(&format!("{TORCHRUN} {rest}")).unwrap().session;
    let names = [
        run("TORCHELASTIC_RUN_ID=a"),
        run("TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=1"),
        run("TORCHELASTIC_RUN_ID=a SLURM_RESTART_COUNT=1"),
        run("TORCHELASTIC_RUN_ID=b"),
    ];
    let distinct: std::collections::BTreeSet<_> = names.iter().flatten().collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(run("TORCHELASTIC_RUN_ID=none"), None);
    assert_eq!(
        run("TORCHELASTIC_RUN_ID=a"),
        run("TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=0")
    );

    let job = |rest: &str| summary(&format!("{SLURM} SLURM_JOB_ID=7 {rest}"));
    assert!(job("SLURM_STEP_ID=3").ends_with("`slurm 7.3 restart 0`"));
    assert!(job("SLURM_STEP_ID=3 SLURM_RESTART_COUNT=2").ends_with("`slurm 7.3 restart 2`"));
    assert!(job("").ends_with(" -"));
}

#[test]
fn slurm_counts_the_tasks_of_each_machine() {
    let tasks = |list: &str| {
        read(&format!("{SLURM} SLURM_TASKS_PER_NODE={list}")).map(|launch| launch.local_size)
    };
    assert_eq!(tasks("8(x2),4").unwrap(), Some(4));
    assert_eq!(tasks("6(x3)").unwrap(), Some(6));
    assert_eq!(tasks("9,9,2").unwrap(), Some(2));
    assert_eq!(tasks("20").unwrap(), None);
    assert!(tasks("8(x2").is_err());
    assert!(tasks("1(x2),1").is_err(), "local rank 1 of 1");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let reason = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(
        reason("RANK=0"),
        "the launch is not clear: `RANK`, `WORLD_SIZE` belong together, but `WORLD_SIZE` is not set"
    );
    assert_eq!(
        reason("SLURM_NTASKS=4"),
        "the launch is not clear: `SLURM_NTASKS`, `SLURM_PROCID` belong together, but `SLURM_PROCID` is not set"
    );
    assert_eq!(
        reason("RANK=two WORLD_SIZE=4"),
        "the launch is not clear: `RANK` cannot be read: `two`"
    );
    assert_eq!(
        reason("PMI_RANK=-1 PMI_SIZE=4"),
        "the launch is not clear: `PMI_RANK` cannot be read: `-1`"
    );
    assert_eq!(
        reason("RANK=4 WORLD_SIZE=4"),
        "the launch is not clear: `RANK`, `WORLD_SIZE` say rank 4 of 4 ranks"
    );
    for text in [
        "RANK=0 WORLD_SIZE=0",
        "RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1",
        "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3",
        "RANK=99999999999999999999999 WORLD_SIZE=2",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn empty_variables_are_not_set() {
    assert_eq!(
        summary("RANK= WORLD_SIZE= CAIRN_SESSION= PMI_RANK=0 PMI_SIZE=1"),
        "pmi 0/1 local ?/? -"
    );
}

#[test]
fn a_world_needs_a_name_only_if_there_are_others() {
    let error = read(TORCHRUN).unwrap().world().unwrap_err();
    assert!(matches!(error, Error::NoSession { size: 8, .. }));
    assert!(error.hint().unwrap().contains(SESSION));
    let named = read(&format!("{TORCHRUN} CAIRN_SESSION=mine")).unwrap();
    let world = named.world().unwrap();
    assert_eq!(
        (world.rank(), world.size(), world.session()),
        (5, 8, "mine")
    );
    let [one, other] = [read("").unwrap().world().unwrap(), World::single()];
    assert_eq!((one.rank(), one.size()), (0, 1));
    assert_ne!(one.session(), other.session());
}
