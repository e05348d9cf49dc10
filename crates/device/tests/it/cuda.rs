//! A real GPU where there is one; a clear message where there is none.

use cairn_device::{Buffer, Error, Filling, Packing, Scratch, SlabOptions, cuda, slab};

#[test]
fn without_a_driver_or_a_device_the_message_says_so() {
    match cuda::device(0) {
        Ok(device) => assert_eq!(device.name(), "cuda:0"),
        Err(error) => {
            assert!(matches!(
                error,
                Error::NoDriver { .. } | Error::Driver { .. } | Error::NoDevice { .. }
            ));
            assert!(error.hint().is_some());
        }
    }
}

/// Small copies of every alignment are packed by the kernel, long ones by the copy engine, and all come back the same.
#[test]
fn what_is_packed_and_fetched_is_what_was_there() {
    let Ok(device) = cuda::device(0) else { return };
    let count = 300_usize;
    let pieces: Vec<(usize, usize)> = (0..count)
        .map(|index| (index * 70_000 + index % 17, (index * 997) % 66_000))
        .collect();
    let source = Scratch::new(&device, count * 70_000 + 70_000).unwrap();
    let target = Scratch::new(&device, count * 66_000).unwrap();
    let mut lane = device.clone().lane().unwrap();
    let mut packing: Packing = target.packing();
    let mut at = 0;
    for (begin, len) in &pieces {
        packing.add(source.memory(), *begin..begin + len, at);
        at += len;
    }
    let (_, kept) = packing.begin(lane.as_mut()).unwrap();
    let fetch = |lane: &mut dyn cairn_device::Lane, scratch: &Scratch, len: usize| -> Buffer {
        let options = SlabOptions {
            pin: Some(device.clone()),
            prefault_threads: 4,
        };
        let (mut buffers, refused) = slab(1, len, &options).unwrap();
        assert!(refused.is_none(), "{refused:?}");
        let mut filling = Filling::new(buffers.pop().unwrap());
        filling.fetch(lane, scratch.memory(), 0..len, 0).unwrap();
        filling.close(lane).unwrap();
        filling.finish().unwrap()
    };
    // Fresh device memory holds whatever it holds: the same on both sides of the copy.
    let before = fetch(lane.as_mut(), &source, count * 70_000 + 70_000);
    let after = fetch(lane.as_mut(), &target, at);
    let mut at = 0;
    for (begin, len) in &pieces {
        assert_eq!(before[*begin..begin + len], after[at..at + len]);
        at += len;
    }
    drop(kept);
}
