Feature: Give tickets back
  As a buyer, I can give a paid booking back until the event starts; as a seller, I can refund seats

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: The buyer gives the booking back
    Given a buyer has paid for 2 seats
    When the buyer asks for a refund
    Then the booking is REFUNDED
    And the hall shows 20 seats available
    And the buyer has got 6000 TWD back
    And asking for a refund again changes nothing
    And another buyer can book those seats

  Scenario: Only what is paid can be given back
    Given a buyer has booked 2 seats
    When the buyer asks for a refund
    Then that is refused with "not_refundable"

  Scenario: Somebody else's booking
    Given a buyer has paid for 2 seats
    When another buyer asks for a refund of it
    Then that is refused with "not_found"
    And the booking is PAID

  Scenario: The event has begun
    Given a buyer has paid for 2 seats
    When the event begins
    And the buyer asks for a refund
    Then that is refused with "refund_too_late"
    And the booking is PAID

  Scenario: The seller refunds one seat of three
    Given a buyer has paid for 3 seats
    When the seller refunds the first seat
    Then the booking is PAID
    And the buyer has 2 sold tickets
    And the buyer has got 3000 TWD back
    And the hall shows 18 seats available
    When the seller refunds the whole booking
    Then the booking is REFUNDED
    And the buyer has got 9000 TWD back
    And the hall shows 20 seats available

  Scenario: The seller cancels what is not paid
    Given a buyer has booked 2 seats
    When the seller refunds the whole booking
    Then the booking is CANCELLED
    And the hall shows 20 seats available
