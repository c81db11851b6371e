//! The order of the step's systems, and that there is no other.

use bevy_ecs::prelude::*;
use paceline::{Config, Geometry};
use paceline_systems::{StepPlan, build, schedule};
use std::sync::Arc;

/// Names in the table at the head of `systems/schedule.rs`, in its order. A row that another system
/// calls is no system of its own.
fn documented() -> Vec<String> {
    let source = include_str!("../systems/schedule.rs");
    let rows = source.lines().filter(|line| line.starts_with("//! | ") && line.contains('`'));
    let rows = rows.filter(|row| !row.contains("called by"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

fn world() -> World {
    build(Arc::new(Geometry::new(&Config::pair()).unwrap()))
}

#[test]
fn systems_run_in_the_documented_order() {
    let (mut world, mut schedule) = (world(), schedule());
    schedule.initialize(&mut world).unwrap();
    let systems = schedule.systems().unwrap();
    let names: Vec<String> = systems
        .map(|(_, system)| system.name().to_string())
        .map(|path| path.rsplit("::").next().unwrap().to_owned())
        // Where `retire` despawns what has ended.
        .filter(|name| name != "apply_deferred")
        .collect();
    assert_eq!(names, documented());
    assert!(names.len() >= 10, "{names:?}");
}

#[test]
fn a_system_without_a_place_in_the_order_is_rejected() {
    fn stranger(mut plan: ResMut<StepPlan>) {
        plan.stats.steps += 1;
    }
    let (mut world, mut schedule) = (world(), schedule());
    schedule.add_systems(stranger);
    let error = schedule
        .initialize(&mut world)
        .err()
        .expect("two systems conflict")
        .to_string(schedule.graph(), &world);
    assert!(error.contains("stranger"), "{error}");
}
