//! Saves whose server dies, or whose keys expire, on the way.

use super::{save_many, store};
use cairn::checkpoint::{Checkpointer, SaveOptions, Saving, State, World, chain};
use cairn::sharding::{Mesh, TensorSpec};
use cairn_store::testing::{BucketServer, Mishap, MishapKind};
use std::time::Duration;

/// Begins a save of step 2 whose file has three parts; the server then has trouble with the second.
fn save_large(server: &BucketServer, trouble: MishapKind) -> (Checkpointer, Saving) {
    server.add(Mishap {
        request: vec!["PUT", "partNumber=2&"],
        kind: trouble,
    });
    let mesh: Mesh = "dp=1".parse().unwrap();
    let spec = TensorSpec::parse(&mesh, "u8[20971520]").unwrap();
    let bytes = vec![7; 20 << 20];
    let mut state = State::new(0);
    state.tensor("w", &spec, &bytes).unwrap();
    let run = Checkpointer::new(store(server, "run"), World::single());
    let saving = run.save(2, &state, &SaveOptions::default()).unwrap();
    (run, saving)
}

#[test]
fn a_save_outlives_its_server() {
    let mut server = BucketServer::start();
    // Whoever drops the run waits for the save.
    let (_run, saving) = save_large(&server, MishapKind::Die);
    while server.is_up() {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.restart();
    saving.wait().unwrap();
    let run = Checkpointer::new(store(&server, "run"), World::single());
    assert_eq!(run.latest().unwrap().checkpoint.step(), 2);
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn keys_that_expire_during_a_save_fail_it_and_harm_nothing() {
    let server = BucketServer::start();
    save_many(store(&server, "run"), 1, 3);
    let (_run, saving) = save_large(&server, MishapKind::Refuse(400, "ExpiredToken"));
    let failed = saving.wait().unwrap_err();
    let told = chain(failed.as_ref());
    assert!(told.contains("they have expired"), "{told}");
    let hint = failed.hint().unwrap_or_default();
    assert!(hint.contains("AWS_ACCESS_KEY_ID"), "{hint}");
    assert_eq!(server.upload_count(), 0, "no parts are left to pay for");
    let run = Checkpointer::new(store(&server, "run"), World::single());
    assert_eq!(run.steps().unwrap(), [1]);
}
