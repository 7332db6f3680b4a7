//! Who gets a seat, and who gives way.

use super::*;
use crate::server::patience::Serving;

/// A connection as the server holds it.
struct Connection {
    seat: Seat,
    turn: Turn,
}

impl Connection {
    fn serve(&self) -> Serving {
        self.turn.begin()
    }

    async fn must_leave(&self) -> bool {
        tokio::time::timeout(std::time::Duration::from_millis(1), self.seat.needed()).await.is_ok()
    }
}

fn peer(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn take(seats: &Arc<Seats>, number: u8) -> Option<Connection> {
    let turn = Turn::default();
    seats.take(peer(number), &turn).map(|seat| Connection { seat, turn })
}

async fn leaving(connections: &[Connection]) -> Vec<usize> {
    let mut leaving = Vec::new();
    for (index, connection) in connections.iter().enumerate() {
        if connection.must_leave().await {
            leaving.push(index);
        }
    }
    leaving
}

#[tokio::test(start_paused = true)]
async fn a_lone_peer_fills_all_but_the_kept_seats() {
    let seats = Seats::new(16);
    let held: Vec<_> = (0..14).map(|_| take(&seats, 1).unwrap()).collect();
    let _requests: Vec<_> = held.iter().map(Connection::serve).collect();
    assert!(take(&seats, 1).is_none());
    assert!(leaving(&held).await.is_empty());
    let other = [take(&seats, 2).unwrap(), take(&seats, 2).unwrap()];
    let _theirs: Vec<_> = other.iter().map(Connection::serve).collect();
    // Everybody works: nobody gives way.
    assert!(take(&seats, 3).is_none());
    drop(other);
    assert!(take(&seats, 3).is_some());
}

#[tokio::test(start_paused = true)]
async fn oldest_idle_connection_of_the_busiest_peer_is_displaced() {
    let seats = Seats::new(16);
    let small = [take(&seats, 2).unwrap(), take(&seats, 2).unwrap()];
    let mut held: Vec<_> = Vec::new();
    for _ in 0..12 {
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        held.extend(take(&seats, 1));
    }
    let others = [take(&seats, 5).unwrap(), take(&seats, 6).unwrap()];
    let serving = held[0].serve();
    let _third = take(&seats, 3).unwrap();
    assert_eq!(leaving(&held).await, [1]);
    drop(serving);
    held[0].seat.answered(true);
    let _fourth = take(&seats, 4).unwrap();
    // The one that was answered well outlives those that were not.
    assert_eq!(leaving(&held).await, [2]);
    assert!(leaving(&small).await.is_empty() && leaving(&others).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_largest_peer_displaces_its_own_connections_alone() {
    let seats = Seats::new(16);
    let small: Vec<_> = (0..3).map(|_| take(&seats, 2).unwrap()).collect();
    let held: Vec<_> = (0..20).map(|_| take(&seats, 1).unwrap()).collect();
    assert!(leaving(&small).await.is_empty());
    assert!(!leaving(&held).await.is_empty());
    assert!(seats.taken.lock().occupants.len() <= 16);
}

#[tokio::test(start_paused = true)]
async fn seats_that_are_given_back_are_free() {
    let seats = Seats::new(2);
    for _ in 0..10 {
        let _seat = take(&seats, 1).unwrap();
    }
    let taken = seats.taken.lock();
    assert!(taken.occupants.is_empty() && taken.peers.is_empty());
}
