//! What a message says beside its payload.
//!
//! ```text
//! kind: u8 | group: u64 | number: u64 | len of call: u32 | call | payload        (little-endian)
//! ```

use crate::communicator::number;

const HEADER_BYTES: usize = 21;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// One rank's part of a call that all make.
    Call,
    /// From one rank to another.
    Message,
    /// The end of all groups.
    End,
}

/// Where in a mailbox a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) kind: Kind,
    pub(super) group: u64,
    /// Which call of the group, or the tag of a message.
    pub(super) number: u64,
}

impl Address {
    pub(super) const END: Self = Self {
        kind: Kind::End,
        group: 0,
        number: 0,
    };
}

/// A message that has been opened.
#[derive(Debug)]
pub(super) struct Letter {
    bytes: Vec<u8>,
    payload: usize,
}

/// A message to this address.
pub(super) fn write(address: Address, call: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + call.len() + payload.len());
    bytes.push(match address.kind {
        Kind::Call => 0,
        Kind::Message => 1,
        Kind::End => 2,
    });
    bytes.extend(address.group.to_le_bytes());
    bytes.extend(address.number.to_le_bytes());
    let call_len = u32::try_from(call.len()).expect("calls are short");
    bytes.extend(call_len.to_le_bytes());
    bytes.extend(call.as_bytes());
    bytes.extend(payload);
    bytes
}

impl Letter {
    /// What arrived, and where it belongs, if it is a message at all.
    pub(super) fn open(bytes: Vec<u8>) -> Option<(Address, Letter)> {
        let header = bytes.get(..HEADER_BYTES)?;
        let kind = match header[0] {
            0 => Kind::Call,
            1 => Kind::Message,
            2 => Kind::End,
            _ => return None,
        };
        let address = Address {
            kind,
            group: number(&header[1..9]),
            number: number(&header[9..17]),
        };
        let call_len = u32::from_le_bytes(header[17..].try_into().ok()?);
        let payload = HEADER_BYTES.checked_add(usize::try_from(call_len).ok()?)?;
        let fits = payload <= bytes.len();
        fits.then_some((address, Letter { bytes, payload }))
    }

    pub(super) fn call(&self) -> String {
        String::from_utf8_lossy(&self.bytes[HEADER_BYTES..self.payload]).into_owned()
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[self.payload..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(group: u64, number: u64, call in ".{0,20}", payload: Vec<u8>) {
            let written = Address { kind: Kind::Message, group, number };
            let (address, letter) = Letter::open(write(written, &call, &payload)).unwrap();
            prop_assert_eq!(address, written);
            prop_assert_eq!(letter.call(), call);
            prop_assert_eq!(letter.payload(), payload);
        }

        #[test]
        fn any_bytes_are_opened_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some((_, letter)) = Letter::open(bytes) {
                let _ = (letter.call(), letter.payload());
            }
        }
    }
}
