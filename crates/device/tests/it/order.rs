//! Copies see what was there when they were ordered, whatever the threads do.

use cairn_device::testing::{SharedBytes, Simulated};
use cairn_device::{Buffer, Device, Filling, Memory, Packing, Scratch, SlabOptions, Stream, slab};
use std::sync::Arc;
use std::time::Duration;

const PRODUCER: Stream = Stream(0);
/// Miri looks at every byte, slowly.
const LEN: usize = if cfg!(miri) { 64 } else { 4096 };
const SEEDS: u64 = if cfg!(miri) { 2 } else { 30 };

fn buffer(device: &Arc<Simulated>) -> Buffer {
    let options = SlabOptions {
        pin: Some(device.clone()),
        prefault_threads: 2,
    };
    let (mut buffers, refused) = slab(1, LEN, &options).unwrap();
    assert!(refused.is_none());
    buffers.pop().unwrap()
}

#[test]
fn a_copy_follows_the_producer_and_holds_it_before_the_next_change() {
    for seed in 0..SEEDS {
        let device = Simulated::new(seed, Duration::from_micros(300));
        let tensor = device.tensor(&[0; LEN]);
        let memory = tensor.memory(PRODUCER);
        let mut lane = device.clone().lane().unwrap();
        for step in 1..6_u8 {
            tensor.fill(PRODUCER, step);
            lane.follow(PRODUCER).unwrap();
            let mut filling = Filling::new(buffer(&device));
            filling.fetch(lane.as_mut(), &memory, 0..LEN, 0).unwrap();
            filling.close(lane.as_mut()).unwrap();
            filling.marks()[0].hold(PRODUCER).unwrap();
            tensor.fill(PRODUCER, step + 100);
            assert!(filling.finish().unwrap().iter().all(|byte| *byte == step));
        }
    }
}

#[test]
fn scratch_takes_the_copy_and_lets_the_producer_go() {
    for seed in 0..SEEDS {
        let device = Simulated::new(seed, Duration::from_micros(300));
        let tensor = device.tensor(&[0; LEN]);
        let memory = tensor.memory(PRODUCER);
        let as_device: Arc<dyn Device> = device.clone();
        let scratch = Scratch::new(&as_device, LEN).unwrap();
        let mut lane = device.clone().lane().unwrap();
        tensor.fill(PRODUCER, 1);
        lane.follow(PRODUCER).unwrap();
        let mut packing: Packing = scratch.packing();
        packing.add(&memory, 0..LEN, 0);
        let (packed, kept) = packing.begin(lane.as_mut()).unwrap();
        packed.hold(PRODUCER).unwrap();
        tensor.fill(PRODUCER, 2);
        device.synchronize(PRODUCER);
        let mut filling = Filling::new(buffer(&device));
        filling
            .fetch(lane.as_mut(), scratch.memory(), 0..LEN, 0)
            .unwrap();
        filling.close(lane.as_mut()).unwrap();
        assert!(filling.finish().unwrap().iter().all(|byte| *byte == 1));
        drop(kept);
    }
}

#[test]
fn memory_lives_until_its_copy_has_arrived() {
    let device = Simulated::new(7, Duration::from_millis(5));
    let tensor = device.tensor(&[3; LEN]);
    let mut lane = device.clone().lane().unwrap();
    let mut filling = Filling::new(buffer(&device));
    let memory = tensor.memory(PRODUCER);
    let owner = Arc::downgrade(memory.owner());
    filling.fetch(lane.as_mut(), &memory, 0..LEN, 0).unwrap();
    filling.close(lane.as_mut()).unwrap();
    drop((tensor, memory));
    assert!(owner.upgrade().is_some());
    assert!(filling.finish().unwrap().iter().all(|byte| *byte == 3));
    assert!(owner.upgrade().is_none());
}

#[test]
fn a_dropped_filling_waits_for_its_copies() {
    let device = Simulated::new(7, Duration::from_millis(5));
    let tensor = device.tensor(&[3; LEN]);
    let mut lane = device.clone().lane().unwrap();
    let mut filling = Filling::new(buffer(&device));
    filling
        .fetch(lane.as_mut(), &tensor.memory(PRODUCER), 0..LEN, 0)
        .unwrap();
    filling.close(lane.as_mut()).unwrap();
    let mark = filling.marks()[0].clone();
    let owner = Arc::downgrade(tensor.memory(PRODUCER).owner());
    drop((filling, tensor));
    assert!(owner.upgrade().is_none());
    mark.wait().unwrap();
}

#[test]
fn refused_pinning_gives_pageable_memory_and_the_reason() {
    let device = Simulated::new(1, Duration::ZERO);
    device.refuse_pinning();
    let options = SlabOptions {
        pin: Some(device.clone()),
        prefault_threads: 1,
    };
    let (buffers, refused) = slab(2, LEN, &options).unwrap();
    assert_eq!(buffers.len(), 2);
    assert!(buffers.iter().all(|buffer| !buffer.is_pinned()));
    assert!(
        refused
            .unwrap()
            .to_string()
            .contains("cannot pin host memory")
    );
}

#[test]
fn buffers_of_a_slab_are_zeroed_aligned_and_apart() {
    let (mut buffers, _) = slab(3, LEN, &SlabOptions::default()).unwrap();
    assert!(
        buffers
            .iter()
            .all(|buffer| buffer.as_ptr().addr().is_multiple_of(LEN))
    );
    assert!(
        buffers
            .iter()
            .flat_map(|buffer| buffer.iter())
            .all(|byte| *byte == 0)
    );
    buffers[1].fill(9);
    assert!(
        buffers[0]
            .iter()
            .chain(buffers[2].iter())
            .all(|byte| *byte == 0)
    );
    assert!(slab(0, LEN, &SlabOptions::default()).unwrap().0.is_empty());
    assert!(slab(usize::MAX, LEN, &SlabOptions::default()).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "loses memory on purpose")]
fn a_failed_copy_is_told_by_every_mark_behind_it() {
    let device = Simulated::new(1, Duration::ZERO);
    device.fail_copies();
    let tensor = device.tensor(&[3; LEN]);
    let mut lane = device.clone().lane().unwrap();
    let mut filling = Filling::new(buffer(&device));
    filling
        .fetch(lane.as_mut(), &tensor.memory(PRODUCER), 0..LEN, 0)
        .unwrap();
    filling.close(lane.as_mut()).unwrap();
    assert!(filling.finish().is_err());
}

#[test]
#[cfg_attr(miri, ignore = "loses memory on purpose")]
fn what_a_failed_copy_may_still_touch_is_never_freed() {
    let device = Simulated::new(1, Duration::ZERO);
    device.fail_copies();
    let tensor = device.tensor(&[3; LEN]);
    let memory = tensor.memory(PRODUCER);
    let owner = Arc::downgrade(memory.owner());
    let mut lane = device.clone().lane().unwrap();
    let mut filling = Filling::new(buffer(&device));
    filling.fetch(lane.as_mut(), &memory, 0..LEN, 0).unwrap();
    filling.close(lane.as_mut()).unwrap();
    drop((tensor, memory));
    assert!(filling.finish().is_err());
    assert!(owner.upgrade().is_some());
}

#[test]
fn shared_bytes_are_changed_under_whoever_holds_them() {
    let bytes = SharedBytes::new(5);
    let memory = bytes.memory();
    bytes.write(3, &[8, 9]);
    let mut out = [1; 5];
    memory.read(0..5, &mut out);
    assert_eq!(
        (out, bytes.len(), bytes.is_empty()),
        ([0, 0, 0, 8, 9], 5, false)
    );
    assert!(std::panic::catch_unwind(|| bytes.write(4, &[1, 2])).is_err());
}

#[test]
fn shared_memory_on_the_host_is_read_in_ranges() {
    let memory = Memory::shared(Arc::from([1, 2, 3, 4, 5]));
    let mut out = [0; 3];
    memory.read(1..4, &mut out);
    assert_eq!((out, memory.len()), ([2, 3, 4], 5));
}
