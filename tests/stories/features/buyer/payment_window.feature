Feature: The payment window
  As a buyer, I can complete payment within the 15-minute window

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: The buyer has fifteen minutes
    When a buyer books 2 seats
    Then the booking is PENDING_PAYMENT
    And the buyer may pay for 15 minutes

  Scenario: The window closes
    Given a buyer has booked 2 seats
    When 15 minutes pass without payment
    Then the booking is CANCELLED within 5 seconds
    And the hall shows 20 seats available within 5 seconds
    And another buyer can book those seats

  Scenario: The buyer cancels
    Given a buyer has booked 2 seats
    When the buyer cancels
    Then the booking is CANCELLED
    And the hall shows 20 seats available
    And cancelling again changes nothing

  Scenario: Only the buyer cancels
    Given a buyer has booked 2 seats
    When another buyer cancels the booking
    Then that is refused with "not_found"
    And the hall shows 18 seats available
