//! A GuardedRelease with its status, in which a guard reads the marks of the one before: whoever may write the status
//! chooses them. Its annotation may hold the ticket of an order.
#![no_main]

use jiff::Timestamp;
use kubemoor_cluster::client::guarded::remembered;
use kubemoor_policy::agreement::LastAgreement;
use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_policy::signing::{SigningKey, Ticket, TicketOrder};
use kubemoor_reconcile::event::LoopOrder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(guarded) = serde_json::from_slice::<GuardedRelease>(text) else { return };
    let key = SigningKey::new([7; 32]);
    let Some(release) = guarded.release() else { return };
    let order = TicketOrder { release: &release, uid: "u", at: "now" };
    for ticket in guarded.metadata.annotations.iter().flatten().map(|(_, text)| text) {
        assert!(Ticket::read(ticket, &key, &order, Timestamp::UNIX_EPOCH).is_err(), "nobody has the key");
    }
    let Some(LoopOrder::Remember { seen, .. }) = remembered(&guarded, &key) else { return };
    for agreement in seen.iter().filter_map(|seen| seen.agreement.as_ref()) {
        let again = LastAgreement::read(&agreement.seal(), agreement.open_paths());
        assert_eq!(again.as_ref(), Some(agreement));
    }
});
