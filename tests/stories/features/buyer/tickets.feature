Feature: My bookings and tickets
  As a buyer, I can see my booking history and my tickets

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open
    And somebody stands at the door

  Scenario: The history shows what became of every booking
    Given a buyer has paid for 2 seats
    And the buyer has booked 1 seats more and lets them go
    Then the buyer's history of this event is CANCELLED, PAID

  Scenario: A ticket for every seat, on the screen and on paper
    Given a buyer has paid for 2 seats
    Then the buyer has 2 tickets at 3000 TWD
    And the paper has 2 pages with the same codes

  Scenario: No tickets before the money
    Given a buyer has booked 2 seats
    When the buyer asks for the tickets
    Then that is refused with "no_tickets"

  Scenario: Nobody else sees them
    Given a buyer has paid for 2 seats
    When another buyer asks for the tickets
    Then that is refused with "not_found"

  Scenario: A lost phone
    Given a buyer has paid for 2 seats
    When the buyer has the first ticket issued again
    Then the old code is told "voided" at the door
    And the new code is told "accepted" at the door

  Scenario: A ticket that was used is not given back
    Given a buyer has paid for 2 seats
    When the first ticket is scanned
    Then the guest is told "accepted"
    When the buyer asks for a refund
    Then that is refused with "already_in"
    And the booking is PAID

  Scenario: A ticket that was given back opens nothing
    Given a buyer has paid for 2 seats
    And the buyer keeps a copy of the tickets
    When the buyer asks for a refund
    Then the booking is REFUNDED
    And the old code is told "refunded" at the door
    And the hall shows 20 seats available
