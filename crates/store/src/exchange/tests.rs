//! Members as values in one process: locks belong to open files, so they tell the living from the dead here, too.

use super::*;

fn join(root: &Path, member: usize) -> Exchange {
    Exchange::join(root, "a", member).unwrap()
}

/// Makes a folder look as if nobody had touched it for an hour.
fn age(folder: &Path) {
    let old = SystemTime::now() - Duration::from_secs(3600);
    let folder = File::open(folder).unwrap();
    folder.set_modified(old).unwrap();
}

#[test]
fn what_one_writes_and_says_the_others_read() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = [0, 1].map(|member| join(root.path(), member));
    assert_eq!(other.note(0).unwrap(), None);
    one.write_at(1000, b"bytes").unwrap();
    one.post(b"first").unwrap();
    one.post(b"second").unwrap();
    let mut read = [0; 7];
    other.read_at(0, 998, &mut read).unwrap();
    assert_eq!(&read, b"\0\0bytes");
    assert_eq!(other.note(0).unwrap().unwrap(), b"second");
    assert!(other.read_at(0, 1000, &mut read).is_err(), "beyond the end");
}

#[test]
fn who_has_left_is_not_alive_but_its_note_stays() {
    let root = tempfile::tempdir().unwrap();
    let one = join(root.path(), 0);
    assert!(!one.is_alive(1), "it has not come");
    let other = join(root.path(), 1);
    other.post(b"bye").unwrap();
    assert!(one.is_alive(0) && one.is_alive(1));
    drop(other);
    assert!(one.is_alive(0) && !one.is_alive(1));
    assert_eq!(one.note(1).unwrap().unwrap(), b"bye");
}

#[test]
fn a_place_is_taken_once() {
    let root = tempfile::tempdir().unwrap();
    let _one = join(root.path(), 0);
    let again = Exchange::join(root.path(), "a", 0).unwrap_err();
    assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
    Exchange::join(root.path(), "b", 0).unwrap();
    for name in ["", "..", "a\0", &"x".repeat(5000)] {
        assert!(Exchange::join(root.path(), name, 0).is_err(), "{name:?}");
    }
}

#[test]
fn the_end_leaves_nothing_and_ends_it_for_all() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = [0, 1].map(|member| join(root.path(), member));
    other.post(b"note").unwrap();
    one.remove();
    assert_eq!(other.note(1).unwrap(), None);
    other.remove();
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn dead_exchanges_are_swept_when_old_and_living_ones_never() {
    let root = tempfile::tempdir().unwrap();
    let living = Exchange::join(root.path(), "living", 0).unwrap();
    let dead = Exchange::join(root.path(), "dead", 0).unwrap();
    let (living_folder, dead_folder) = (living.folder.clone(), dead.folder.clone());
    dead.post(b"last words").unwrap();
    // As after a kill: the file is there, the lock is not.
    std::fs::write(dead.path(1, "bytes"), "").unwrap();
    drop(dead);
    sweep(root.path());
    assert!(dead_folder.exists(), "not old yet");
    age(&dead_folder);
    age(&living_folder);
    let _joined = Exchange::join(root.path(), "new", 0).unwrap();
    assert!(!dead_folder.exists() && living_folder.exists());
}

#[test]
fn the_default_root_is_a_folder() {
    assert!(Exchange::default_root().is_dir());
}

/// Runs `body` on a thread of its own; a body that hangs fails the test.
fn in_time(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    finished.recv_timeout(Duration::from_secs(20)).unwrap();
}

fn pipe(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
}

#[test]
fn pipes_and_links_among_exchanges_hold_nobody_up() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("kept"), "kept").unwrap();
    let old = root.path().join("cairn-exchange-old");
    std::fs::create_dir(&old).unwrap();
    pipe(&old.join("0.bytes"));
    std::os::unix::fs::symlink(elsewhere.path(), old.join("1.bytes")).unwrap();
    age(&old);
    let link = root.path().join("cairn-exchange-link");
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    age(elsewhere.path());
    pipe(&root.path().join("cairn-exchange-pipe"));
    let place = root.path().to_path_buf();
    in_time(move || drop(join(&place, 0)));
    // Dead, and of this user: it goes, and nothing that its links lead to.
    assert!(!old.exists() && link.exists());
    assert!(elsewhere.path().join("kept").exists());
}

#[test]
fn pipes_and_links_in_the_place_of_a_member_are_told_and_not_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let one = join(root.path(), 0);
    pipe(&one.path(1, "bytes"));
    pipe(&one.path(1, "note"));
    std::os::unix::fs::symlink("/dev/zero", one.path(2, "bytes")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", one.path(2, "note")).unwrap();
    in_time(move || {
        for member in [1, 2] {
            assert!(one.note(member).is_err());
            assert!(one.read_at(member, 0, &mut [0; 4]).is_err());
            assert!(!one.is_alive(member));
        }
    });
}

#[test]
fn a_link_in_the_place_of_an_exchange_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join("cairn-exchange-a")).unwrap();
    let refused = Exchange::join(root.path(), "a", 0).unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.contains("is no folder of this user"), "{text}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_folder_of_another_user_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let theirs = root.path().join("cairn-exchange-theirs");
    std::fs::create_dir(&theirs).unwrap();
    pipe(&theirs.join("x"));
    age(&theirs);
    // Only root gives folders away.
    if std::os::unix::fs::chown(&theirs, Some(65_534), None).is_err() {
        return;
    }
    let place = root.path().to_path_buf();
    in_time(move || drop(join(&place, 0)));
    assert!(theirs.exists());
    assert!(Exchange::join(root.path(), "theirs", 0).is_err());
}
