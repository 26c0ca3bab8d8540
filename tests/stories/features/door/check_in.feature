Feature: At the door
  As door staff, I let every ticket in once

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open
    And somebody stands at the door
    And a buyer has paid for 2 seats

  Scenario: Once in, not twice
    When the first ticket is scanned
    Then the guest is told "accepted"
    When the first ticket is scanned
    Then the guest is told "already_in", and when and where the first one came in
    And the seller's log shows accepted, already_in

  Scenario: Two doors without a network
    When the south door has scanned the first ticket at 19:03 without a network
    And the north door has scanned the first ticket at 19:01 without a network
    Then the log shows the north door at 19:01 as the entry and the south door as the second

  Scenario: A door of another event
    When the first ticket is scanned at another event's door
    Then the guest is told "other_event"

  Scenario: Staff who were withdrawn
    When the seller withdraws the staff
    And the first ticket is scanned
    Then that is refused with "not_found"
