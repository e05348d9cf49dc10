//! Clients that say nonsense, say nothing, or belong to somebody else.

use crate::rank::command;
use crate::world::Home;
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// A deadline that nothing but a hung keeper reaches.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user that is not root, wherever there are users.
const NOBODY: u32 = 65_534;

fn frame(head: &str, body_len: u32) -> Vec<u8> {
    let head_len = u32::try_from(head.len()).unwrap();
    let mut bytes = head_len.to_le_bytes().to_vec();
    bytes.extend(body_len.to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let hello = frame(r#"{"ask":"hello","version":1}"#, 0);
    let words = prop_oneof![
        Just(r#"{"ask":"captured","snapshot":1}"#.to_string()),
        Just(r#"{"ask":"fetch","snapshot":18446744073709551615}"#.to_string()),
        Just(r#"{"ask":"held","run":"file:///nowhere"}"#.to_string()),
        Just(r#"{"ask":"begin","about":{"run":"file:///x","step":1,"attempt":"../..","writer":9,"world":0,"len_bytes":18446744073709551615,"replace":true}}"#.to_string()),
        Just(format!("{}1{}", "[".repeat(5000), "]".repeat(5000))),
        "\\PC{0,60}",
    ];
    let known = (words, 0..40_u32).prop_map(|(head, body_len)| frame(&head, body_len));
    let garbage = proptest::collection::vec(any::<u8>(), 0..100);
    let one = prop_oneof![known, garbage];
    (any::<bool>(), proptest::collection::vec(one, 0..4)).prop_map(move |(greets, said)| {
        let greeting = if greets { hello.clone() } else { Vec::new() };
        [greeting, said.concat()].concat()
    })
}

#[test]
fn nothing_that_is_said_harms_the_keeper() {
    let home = Home::new();
    let config = ProptestConfig {
        max_shrink_iters: 0,
        ..ProptestConfig::with_cases(100)
    };
    proptest!(config, |(said in messages())| {
        let mut stream = UnixStream::connect(home.socket()).unwrap();
        // It may have hung up already.
        let _ = stream.write_all(&said);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let heard = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        prop_assert!(heard != Err(ErrorKind::WouldBlock), "no end of answers");
        prop_assert_eq!(home.status().used_bytes, 0);
    });
    home.wait_for("no clients", |status| status.clients == 0);
}

#[test]
fn who_says_nothing_holds_nobody_up() {
    let home = Home::new();
    let silent: Vec<UnixStream> = (0..50)
        .map(|_| UnixStream::connect(home.socket()).unwrap())
        .collect();
    (&silent[0]).write_all(&[200, 0, 0]).unwrap();
    home.wait_for("all of them", |status| status.clients == silent.len());
}

#[test]
fn somebody_else_is_turned_away() {
    let home = Home::new();
    let socket = home.socket();
    // As if the folder had been opened to others behind the keeper's back.
    for path in [home.folder.path(), socket.parent().unwrap(), &socket] {
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let mut stranger = command(&["stranger", socket.to_str().unwrap()]);
    let Ok(output) = stranger.uid(NOBODY).output() else {
        // Only root becomes somebody else, and only where somebody else may run this program.
        return;
    };
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("0 bytes of an answer"), "{said}");
    home.wait_for("no clients", |status| status.clients == 0);
}
