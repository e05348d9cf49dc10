//! What each tier has, seen through both.

use std::sync::Arc;

use cairn_store::testing::{Fault, FlakyStore, Operation, Rule, conformance};
use cairn_store::{Memory, PutMode, Store, Tiered, open};

fn put(store: &dyn Store, key: &str, bytes: &[u8]) {
    store.put(key, bytes, PutMode::Create).unwrap();
}

#[test]
fn tiers_conform() {
    conformance(|| {
        let (fast, durable) = (Memory::new(), Memory::new());
        Arc::new(Tiered::new(Arc::new(fast), Arc::new(durable)))
    });
}

#[test]
fn the_nearest_tier_that_has_an_object_gives_it() {
    let (fast, durable) = (Memory::new(), Memory::new());
    put(&durable, "a/old", b"durable");
    put(&durable, "a/both", b"durable");
    put(&fast, "a/both", b"fast");
    let tiers = Tiered::new(Arc::new(fast), Arc::new(durable));
    put(&tiers, "b/new", b"fast");
    assert_eq!(tiers.get("a/old").unwrap(), b"durable");
    assert_eq!(tiers.get("a/both").unwrap(), b"fast");
    assert_eq!(tiers.head("a/both").unwrap().unwrap().len, 4);
    assert!(tiers.durable().head("b/new").unwrap().is_none());
    assert_eq!(tiers.list_folders("").unwrap(), ["a", "b"]);
    let listing = tiers.list("a").unwrap().into_iter();
    let keys: Vec<String> = listing.map(|meta| meta.key).collect();
    assert_eq!(keys, ["a/both", "a/old"]);
    tiers.delete("a/both").unwrap();
    assert!(tiers.head("a/both").unwrap().is_none());
}

#[test]
fn a_durable_tier_that_cannot_be_reached_hides_its_own_only() {
    let fast = Memory::new();
    let durable = FlakyStore::new(Memory::new());
    durable.add(Rule::new([Operation::List], Fault::TIMED_OUT));
    let tiers = Tiered::new(Arc::new(fast.clone()), Arc::new(durable));
    assert!(tiers.list_folders("").is_err());
    put(&fast, "step/COMMIT", b"{}");
    assert_eq!(tiers.list_folders("").unwrap(), ["step"]);
}

#[test]
fn an_address_names_both_tiers_and_opens_again() {
    for address in ["tiers:/a b,/c", "node-tiers:file:///a%2Cb,/c,d"] {
        let store = open(address).unwrap();
        assert_eq!(open(&store.url()).unwrap().url(), store.url());
        let tiers = store.tiers().unwrap();
        assert_eq!(tiers.is_per_node(), address.starts_with("node"));
    }
    let store = open("tiers:/a,/b").unwrap();
    assert_eq!(store.url(), "tiers:file:///a,file:///b");
    let error = open("tiers:/a").unwrap_err().to_string();
    assert!(error.contains("a comma between"), "{error}");
    assert!(open("tiers:,/b").is_err());
}
