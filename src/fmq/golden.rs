//! The memory of a channel, pinned.

use super::channel_layout::CONTROL_OFFSETS;
use super::*;

const FILE: &str = "src/fmq/golden.hex";

#[test]
fn bytes_of_a_channel_are_as_ever() {
    let size = ChannelSize {
        outgoing: 128,
        incoming: 64,
    };
    let (mut client, memory) = ChannelEnd::create(size, WaitSettings::Sleep).unwrap();
    let mut server = ChannelEnd::open(&memory, WaitSettings::Sleep).unwrap();
    // Two cells, the second of them with padding; then one cell in the other direction.
    let long: Vec<u8> = (1..=60).collect();
    client.producer.send(&long).unwrap();
    let mut packet = server.consumer.new_packet();
    assert!(server.consumer.try_receive(&mut packet).unwrap());
    server.producer.send(&[0xD1]).unwrap();
    let bytes = |offset, length| memory.read_to_vec(offset, length).unwrap();
    let mut entries = vec![
        ("size of the memory".into(), memory.size().to_le_bytes().to_vec()),
        ("header".into(), bytes(0, 24)),
        ("first cells from the creator".into(), bytes(4096, 192)),
        ("first cells to the creator".into(), bytes(4096 * 3, 128)),
        ("word of the consumed cells".into(), bytes(CONTROL_OFFSETS[0], 8)),
    ];
    client.closer.close();
    for (direction, offset) in ["from", "to"].iter().zip(CONTROL_OFFSETS) {
        // Without the time at the end.
        let name = format!("doorbell {direction} the creator after the end");
        entries.push((name, bytes(offset + 128, 8)));
    }
    let entries: Vec<_> = entries.into_iter().map(crate::golden::as_ever).collect();
    crate::golden::check(FILE, &entries);
}
