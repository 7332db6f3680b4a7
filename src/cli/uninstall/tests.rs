use super::*;

#[test]
fn commands_are_those_that_the_api_server_can_carry_out() {
    let says = |served: bool| report(true, None, served).contains("validatingadmissionpolicybinding");
    assert!(says(true) && !says(false));
    assert!(ADMISSION_POLICIES.contains(LABEL));
}
