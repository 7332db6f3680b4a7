mod lease {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;

    use super::super::*;

    fn lease(version: u64, holder: &str, seconds: i32) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.to_string()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn a_candidate_does_what_the_lease_says() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let check = |seen: Option<Option<Lease>>, at: u64, step: ElectionStep| {
            let mut candidacy = Candidacy::new("a".to_owned());
            if let Some(seen) = seen {
                candidacy.see(seen.as_ref(), start);
            }
            assert_eq!(candidacy.step(after(at)), step);
        };
        check(None, 0, ElectionStep::Read);
        check(Some(None), 0, ElectionStep::Take);
        check(Some(Some(lease(1, "", 1))), 0, ElectionStep::Take);
        check(Some(Some(lease(1, "b", 12))), 0, ElectionStep::Wait(after(12)));
        check(Some(Some(lease(1, "b", 12))), 11, ElectionStep::Wait(after(12)));
        check(Some(Some(lease(1, "b", 12))), 12, ElectionStep::Take);
        check(Some(Some(lease(1, "b", 30))), 29, ElectionStep::Wait(after(30)));
        // What nobody would write: it expires as any other.
        check(Some(Some(lease(1, "b", -5))), 11, ElectionStep::Wait(after(12)));
        check(Some(Some(lease(1, "a", 12))), 0, ElectionStep::Renew);
    }

    #[test]
    fn lease_expiry_is_extended_by_renewal_but_not_by_rereading() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut candidacy = Candidacy::new("a".to_owned());
        candidacy.see(Some(&lease(1, "b", 12)), start);
        candidacy.see(Some(&lease(1, "b", 12)), after(6));
        assert_eq!(candidacy.step(after(7)), ElectionStep::Wait(after(12)));
        candidacy.see(Some(&lease(2, "b", 12)), after(8));
        assert_eq!(candidacy.step(after(13)), ElectionStep::Wait(after(20)));
    }

    #[test]
    fn a_failed_attempt_is_not_repeated_at_once() {
        let start = Instant::now();
        let mut candidacy = Candidacy::new("a".to_owned());
        candidacy.failed(start + RETRY);
        assert_eq!(candidacy.step(start), ElectionStep::Wait(start + RETRY));
        assert_eq!(candidacy.step(start + RETRY), ElectionStep::Read);
    }

    #[test]
    fn a_belief_ends_before_anybody_may_take_the_lease() {
        assert!(LEADERSHIP_DURATION < LIFE);
        assert!(RENEWAL + ATTEMPT < LEADERSHIP_DURATION, "one slow renewal costs the lead");
        assert!(LIFE + ATTEMPT <= Duration::from_secs(15), "a hand-over takes too long");
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_is_told_to_nobody_and_a_new_lead_is() {
        let leadership = Leadership::never();
        let mut told = leadership.watch();
        let is_told = |told: &mut watch::Receiver<bool>| {
            let news = told.has_changed().unwrap();
            (news, *told.borrow_and_update())
        };
        leadership.gain(Instant::now() + LEADERSHIP_DURATION);
        assert_eq!(is_told(&mut told), (true, true));
        tokio::time::advance(LEADERSHIP_DURATION / 2).await;
        leadership.gain(Instant::now() + LEADERSHIP_DURATION);
        assert_eq!(is_told(&mut told), (false, true));
        // Somebody else may have led meanwhile.
        tokio::time::advance(LEADERSHIP_DURATION * 2).await;
        leadership.gain(Instant::now() + LEADERSHIP_DURATION);
        assert_eq!(is_told(&mut told), (true, true));
        leadership.lose();
        assert_eq!(is_told(&mut told), (true, false));
        leadership.lose();
        assert_eq!(is_told(&mut told), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_ends_by_the_clock_although_nobody_says_so() {
        let leadership = Leadership::never();
        assert!(!leadership.is_leader());
        leadership.gain(Instant::now() + LEADERSHIP_DURATION);
        let told = leadership.watch();
        assert!(leadership.is_leader() && *told.borrow());
        tokio::time::advance(LEADERSHIP_DURATION).await;
        assert!(!leadership.is_leader());
        assert!(*told.borrow(), "only its task tells");
        assert!(Leadership::alone().is_leader());
    }

    /// One candidate in the simulation: when it believes to lead, until when.
    struct SimulatedCandidate {
        candidacy: Candidacy,
        believes: Option<Instant>,
        /// What it knows of the Lease: the resourceVersion that it would write on.
        version: u64,
    }

    proptest! {
        /// Replicas that stop, sleep and go on at random never lead two at a time.
        #[test]
        fn no_two_replicas_lead_at_any_time(moves in prop::collection::vec((0_usize..3, 0_u64..4000, any::<bool>()), 1..400)) {
            let mut now = Instant::now();
            let mut stored: Option<(u64, String)> = None;
            let mut replicas: Vec<SimulatedCandidate> = (0..3)
                .map(|index| SimulatedCandidate { candidacy: Candidacy::new(index.to_string()), believes: None, version: 0 })
                .collect();
            for (index, millis, sees) in moves {
                now += Duration::from_millis(millis);
                let replica = &mut replicas[index];
                let seen = stored.as_ref().map(|(version, holder)| lease(*version, holder, 12));
                if sees {
                    replica.candidacy.see(seen.as_ref(), now);
                    replica.version = stored.as_ref().map_or(0, |(version, ..)| *version);
                }
                match replica.candidacy.step(now) {
                    ElectionStep::Wait(_) => {}
                    ElectionStep::Read => {
                        replica.candidacy.see(seen.as_ref(), now);
                        replica.version = stored.as_ref().map_or(0, |(version, ..)| *version);
                    }
                    ElectionStep::Take | ElectionStep::Renew => {
                        if stored.as_ref().map_or(0, |(version, ..)| *version) == replica.version {
                            let (name, version) = (replica.candidacy.me.clone(), replica.version + 1);
                            replica.candidacy.see(Some(&lease(version, &name, 12)), now);
                            stored = Some((version, name));
                            replica.candidacy.renewed(now);
                            replica.version = version;
                            replica.believes = Some(now + LEADERSHIP_DURATION);
                        } else {
                            replica.candidacy.unknown();
                        }
                    }
                }
                let leaders = replicas.iter().filter(|replica| replica.believes.is_some_and(|until| until > now)).count();
                prop_assert!(leaders <= 1, "{leaders} replicas lead");
            }
        }
    }
}

mod leader_info {
    use super::super::*;

    fn after(authority: Option<&str>, mut lease: Lease) -> (LeaderInfo, Lease) {
        annotate(&mut lease.metadata, authority);
        (describe(lease.clone()), lease)
    }

    #[test]
    fn lease_tells_the_version_and_the_present_authority() {
        let (info, lease) = after(Some("pem"), Lease::default());
        assert_eq!((info.version.as_deref(), info.authority.as_deref()), (Some(build::VERSION), Some("pem")));
        assert_eq!(info.commit.as_deref(), build::commit());
        // One that is gone, or too long for a Lease, is told of no more; what others have written stays.
        let mut lease = lease;
        lease.metadata.annotations.as_mut().unwrap().insert("team".to_owned(), "platform".to_owned());
        for authority in [None, Some("x".repeat(CA_BUNDLE_CAP + 1).as_str())] {
            let (info, lease) = after(authority, lease.clone());
            assert_eq!(info.authority, None);
            assert_eq!(lease.metadata.annotations.unwrap()["team"], "platform");
        }
    }
}

mod withdrawal {
    use super::super::*;

    #[test]
    fn withdrawal_holds_registration_for_ten_minutes() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let check = |at: &str, wanted: Option<u64>| {
            let at = at.parse().unwrap();
            assert_eq!(hold_left(at, now), wanted.map(Duration::from_secs), "{at:?}");
        };
        check("2026-01-01T12:00:00Z", Some(600));
        check("2026-01-01T11:59:00Z", Some(540));
        check("2026-01-01T11:50:00Z", None);
        check("2025-01-01T11:50:00Z", None);
        check("2026-01-01T12:01:00Z", Some(600));
        check("2027-01-01T12:00:00Z", None);
    }

    #[test]
    fn a_note_is_measured_once_by_the_own_clock() {
        let (start, time): (_, Timestamp) = (Instant::now(), "2026-01-01T12:00:00Z".parse().unwrap());
        let minutes = |count: i64| SignedDuration::from_mins(count);
        let after = |count: u64| start + Duration::from_secs(60 * count);
        // One of a clock that is half an hour ahead has no effect, now or when its time comes.
        let mut hold = WithdrawalHold::default();
        let ahead = Some(time + minutes(30));
        assert_eq!(hold.see(ahead, (start, time)), None);
        assert_eq!(hold.see(ahead, (after(25), time + minutes(25))), None);
        // One a little ahead counts from now on, and a clock that is set back does not prolong it.
        let little = Some(time + minutes(5));
        assert_eq!(hold.see(little, (start, time)), Some(after(10)));
        assert_eq!(hold.see(little, (after(1), time - minutes(600))), Some(after(10)));
        // A second withdrawal begins anew, and a note that is removed ends it.
        let again = Some(time + minutes(8));
        assert_eq!(hold.see(again, (after(8), time + minutes(8))), Some(after(18)));
        assert_eq!(hold.see(None, (after(9), time + minutes(9))), None);
    }

    #[test]
    fn note_that_is_no_time_holds_nothing() {
        let lease = |note: &str| ObjectMeta {
            annotations: Some([(WITHDRAWN.to_owned(), note.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(withdrawn_at(&lease("true")), None);
        assert!(withdrawn_at(&lease("2026-01-01T12:00:00Z")).is_some());
    }
}
