Feature: Pay within the window
  As a buyer, I can complete payment within the 15-minute window

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: Paid in time
    Given a buyer has booked 2 seats
    When 14 minutes pass
    And the buyer pays with "card_ok"
    Then the payment is CAPTURED over 6000 TWD
    And the booking is PAID
    And the buyer has 2 sold tickets
    And the hall shows 18 seats available

  Scenario: A paid booking does not run out
    Given a buyer has booked 2 seats
    When the buyer pays with "card_ok"
    And 15 minutes pass without payment
    Then the booking is PAID
    And the hall shows 18 seats available

  Scenario: Declined, then paid with another card
    Given a buyer has booked 2 seats
    When the buyer pays with "card_declined"
    Then that is refused with "payment_declined"
    And the booking is PENDING_PAYMENT
    When the buyer pays with "card_ok"
    Then the booking is PAID

  Scenario: The bank wants a confirmation
    Given a buyer has booked 2 seats
    When the buyer pays with "card_3ds"
    Then the payment is ACTION over 6000 TWD
    And the booking is PAYING
    When the buyer confirms with "000000"
    Then the booking is PAID

  Scenario: A wrong confirmation leaves time for another card
    Given a buyer has booked 2 seats
    When the buyer pays with "card_3ds"
    And the buyer confirms with "111111"
    Then that is refused with "payment_declined"
    And the booking is PENDING_PAYMENT

  Scenario: Too late
    Given a buyer has booked 2 seats
    When 15 minutes pass without payment
    Then the booking is CANCELLED within 5 seconds
    When the buyer pays with "card_ok"
    Then that is refused with "booking_expired"

  Scenario: The provider charged and did not answer
    Given a buyer has booked 2 seats
    When the buyer pays with "card_charge_timeout"
    Then the payment is STARTED over 6000 TWD
    And the booking is PAYING
    When 10 seconds pass
    Then the booking is PAID

  Scenario: The provider did not answer and did not charge
    Given a buyer has booked 2 seats
    When the buyer pays with "card_timeout"
    And 10 seconds pass
    Then the booking is PENDING_PAYMENT
    When the buyer pays with "card_ok"
    Then the booking is PAID

  Scenario: The provider decides later, before the seats are let go
    Given a buyer has booked 2 seats
    When the buyer pays with "card_late"
    Then the booking is PAYING
    And the booking is PAID

  Scenario: Seats that were free cost nothing
    Given "Open Day" is on sale with 10 seats for nothing
    And a buyer has booked 2 seats
    When the buyer pays with "card_ok"
    Then the booking is PAID
