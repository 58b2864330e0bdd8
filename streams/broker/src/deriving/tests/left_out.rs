//! Records that a derived topic would reject from a producer.

use super::{Pairs, World, field, log_of};

#[test]
fn records_that_a_derived_topic_does_not_take_are_left_out_alone() {
    let mut world = World::new(5);
    let keyed = "CREATE TOPIC d_keyed WITH (\"cleanup.policy\" = 'compact') AS \
                 SELECT value->>'symbol' AS key, value FROM orders";
    let late = "CREATE TOPIC d_late AS \
                SELECT '2099-01-01 00:00:00+00'::timestamptz AS time, value FROM orders";
    world.create(&[], &[keyed, late]);
    let mut life = world.open();
    life.worker.find();
    let topic = |name| life.topics.by_name(name).expect("it is there");
    (0..30).for_each(|_| world.publish(&topic("orders")));
    while life.worker.turn_all(true) {}
    let passes = |(_, value): (_, Option<String>)| {
        let symbol = field(value.as_deref()?, "symbol")?.as_str()?.to_owned();
        Some((Some(symbol), value))
    };
    for (number, committed) in std::mem::take(&mut world.committed) {
        let expected: Pairs = committed.into_iter().filter_map(passes).collect();
        assert!(expected.len() > 10 && log_of(&topic("d_keyed"), number).0 == expected);
        assert_eq!(log_of(&topic("d_late"), number).0, Pairs::new());
    }
}
