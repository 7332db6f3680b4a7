use super::*;

#[test]
fn is_due_each_time_that_the_values_may_have_doubled_and_never_among_few() {
    let check = |left: usize, next: usize| {
        let mut sweep = Sweep::above(10);
        assert!(!sweep.is_due(9) && sweep.is_due(10));
        sweep.note_left(left);
        assert!(!sweep.is_due(next - 1), "{left} left: due too early");
        assert!(sweep.is_due(next), "{left} left: due too late");
    };
    check(0, 10);
    check(5, 10);
    check(6, 12);
    check(1000, 2000);
}
