//! The devices a state lies on, and the order of their work.

use crate::Error;
use crate::bytes::Bytes;
use cairn_device::{Device, Lane, Mark, Place, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The lanes of all devices that a state lies on, by name.
#[derive(Debug, Default)]
pub(crate) struct Lanes(BTreeMap<String, Occupied>);

/// One device, its lane, and the streams whose work is copied.
#[derive(Debug)]
struct Occupied {
    device: Arc<dyn Device>,
    lane: Box<dyn Lane>,
    streams: BTreeSet<Stream>,
}

impl Lanes {
    /// Opens the lanes of the devices that `bytes` are on, behind what their streams were given so far.
    pub(crate) fn follow(bytes: &[Bytes]) -> Result<Self, Error> {
        let mut lanes = Self::default();
        for memory in bytes.iter().filter_map(Bytes::memory) {
            if let Place::Device(device, stream) = memory.place() {
                lanes.add(device, *stream).map_err(failed)?;
            }
        }
        Ok(lanes)
    }

    fn add(&mut self, device: &Arc<dyn Device>, stream: Stream) -> Result<(), cairn_device::Error> {
        let name = device.name().to_string();
        if !self.0.contains_key(&name) {
            let lane = device.clone().lane()?;
            let occupied = Occupied {
                device: device.clone(),
                lane,
                streams: BTreeSet::new(),
            };
            self.0.insert(name.clone(), occupied);
        }
        let occupied = self.0.get_mut(&name).expect("just put there");
        if occupied.streams.insert(stream) {
            occupied.lane.follow(stream)?;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Arc<dyn Device>> {
        self.0.values().map(|occupied| &occupied.device)
    }

    /// The lane of a device.
    pub(crate) fn lane(&mut self, device: &str) -> &mut dyn Lane {
        let occupied = self.0.get_mut(device);
        occupied
            .expect("lanes were opened for every tensor's device")
            .lane
            .as_mut()
    }

    /// Makes the streams that are copied wait for a mark of their device.
    pub(crate) fn hold(&self, device: &str, mark: &dyn Mark) -> Result<(), Error> {
        let streams = self
            .0
            .get(device)
            .into_iter()
            .flat_map(|occupied| &occupied.streams);
        for stream in streams {
            mark.hold(*stream).map_err(failed)?;
        }
        Ok(())
    }

    /// A mark behind everything each device was given.
    pub(crate) fn marks(&mut self) -> Result<BTreeMap<String, Arc<dyn Mark>>, Error> {
        let marks = self.0.iter_mut().map(|(name, occupied)| {
            let mark = occupied.lane.mark().map_err(failed)?;
            Ok((name.clone(), mark))
        });
        marks.collect()
    }
}

pub(crate) fn failed(source: cairn_device::Error) -> Error {
    Error::Capture { source }
}
