Feature: Select seats without conflicts
  As a buyer, I can select seats in real-time without conflicts

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: The best seats together
    When a buyer books 4 seats
    Then the booking is PENDING_PAYMENT
    And the buyer has 4 adjacent seats and pays 12000 TWD
    And the hall shows 16 seats available

  Scenario: Seats by name
    When a buyer books the seats 2-3 and 2-4
    Then the booking is PENDING_PAYMENT
    And the buyer has the seats 2-3 and 2-4

  Scenario: A seat that somebody has
    Given a buyer has booked the seats 2-3 and 2-4
    When another buyer books the seats 2-4 and 2-5
    Then the booking is FAILED because of "taken"
    And the hall shows 18 seats available
    And the seat 2-5 can still be booked

  Scenario: A couple stays together or stays at home
    Given a buyer has booked the seats 2-3 and 2-4
    When another buyer books the seats 2-2 and 2-3
    Then the booking is FAILED because of "taken"
    And the other buyer has no seat

  Scenario: Taking what there is, if the buyer says so
    Given a buyer has booked the seats 2-3 and 2-4
    When another buyer books the seats 2-4 and 2-5 and would take fewer
    Then the booking is PENDING_PAYMENT
    And the other buyer has the seat 2-5

  Scenario: The hall is full
    Given buyers have booked all 20 seats
    When another buyer asks for 1 seat
    Then the buyer hears "sold_out"
    And the other buyer has no seat

  Scenario: One buyer cannot buy the hall
    Given a buyer has booked 10 seats
    When the same buyer asks for 1 more seat
    Then that is refused with "limit"
    And the hall shows 10 seats available

  Scenario: Looking at one's bookings
    Given a buyer has booked 2 seats
    And the buyer has booked 3 seats more
    Then the buyer sees 2 bookings, the newest first
    And another buyer sees none of them
