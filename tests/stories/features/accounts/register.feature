Feature: Register
  As a visitor, I can register as a seller
  As a visitor, I can register as a buyer

  Scenario Outline: A visitor registers as a <role>
    Given a visitor
    When the visitor registers as a <role>
    Then the visitor has an account as a <role>
    And the visitor can log in

    Examples:
      | role   |
      | seller |
      | buyer  |

  Scenario Outline: Nobody makes themselves <role>
    Given a visitor
    When the visitor registers as a <role>
    Then the registration is refused with "invalid_request"
    And the visitor has no account

    Examples:
      | role     |
      | operator |
      | door     |

  Scenario: The address is already registered
    Given a visitor who has registered as a buyer
    When somebody registers the same address in capital letters as a seller
    Then the registration is refused with "email_taken"
    And the visitor has an account as a buyer

  Scenario: A password that everybody guesses first
    Given a visitor
    When the visitor registers with the password "password123"
    Then the registration is refused with "weak_password"
    And the visitor has no account
