//! A server in thirty lines: requests come from another thread, a stand-in model answers, tokens
//! stream out. Run with `cargo run --example embed`.

use paceline::kernels::HostDevice;
use paceline::{Config, Core, Event, NewRequest, Outcome};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut core = Core::builder().config(Config::pair()).max_batch(8).build()?;
    let mut device = HostDevice::new(core.geometry());
    let inbox = core.inbox();
    let clients = std::thread::spawn(move || {
        (1..=3)
            .try_for_each(|id| inbox.submit(NewRequest::new(id, vec![100; 40 * id as usize], 12)))
    });
    clients.join().expect("the client thread ends")?;

    let mut outcome = Outcome::default();
    while !core.is_idle() {
        let plan = core.step()?;
        device.submit(plan.launches());
        for output in plan.outputs() {
            println!("request {} says {:?}", output.request, output.tokens);
        }
        for event in plan.events() {
            if let Event::Finished { request, reason, .. } = event {
                println!("request {request} is done: {reason:?}");
            }
        }
        // A model would run the rows here; this one accepts two drafts of every block.
        outcome.begin(plan.step());
        for row in plan.rows() {
            let (least, most) = row.emits();
            outcome.push_row(&[7, 8, 9][..3.clamp(least, most) as usize]);
        }
        if !plan.rows().is_empty() {
            core.complete(&outcome)?;
        }
    }
    Ok(())
}
